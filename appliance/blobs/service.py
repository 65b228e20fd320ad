"""The blob store: stores and reads contents; contents without references are garbage-collected.

Bytes are stored first, at a place that is used once, then their row.  Within `GRACE_MS` the caller inserts a row of its own
that refers to it by (tenant_id, sha256) and calls `hold` in the same write.  A place is deleted only after its row, and a row
only while nothing refers to it, so that every reference always has its bytes.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from peewee import IntegrityError

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, PayloadTooLarge
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import deleted_places, quota
from .models import Blob
from .pieces import Pieces
from .receiving import ReceivedFile, Receiver, pieces_of
from .signing import AddressSigner, Download

log = logging.getLogger(__name__)
GRACE_MS = 24 * 3_600_000
COLLECTED_AT_ONCE = 500
_ROWS_AT_ONCE = 500
_NAMES_AT_ONCE = 10_000  # parameters of a statement: SQLite takes 32,766
MOST_TOGETHER, BYTES_TOGETHER = 100, 8 << 20  # the contents and bytes of a batch that wait on the disk to be stored together


class Places(Protocol):
    """A store of contents by place; `LocalPlaces` documents each method."""

    @property
    def signer(self) -> AddressSigner | None: ...
    def receiver(self) -> Receiver: ...
    def adopt(self, path: Path, place: str) -> None: ...
    def adopt_all(self, files: Sequence[tuple[Path, str]]) -> None: ...
    def holds(self, place: str, size: int) -> bool: ...
    def read(self, place: str, start: int, end: int) -> Pieces: ...
    def delete(self, place: str) -> None: ...
    def walk(self) -> Iterator[tuple[str, int]]: ...
    def delete_incoming(self, before_ms: int) -> int: ...
    def delete_copies(self, find_named: Callable[[Sequence[str]], set[str]]) -> None: ...


@dataclass(frozen=True)
class StoredBlob:
    """A durable content, which must be referenced within a day; `head` is its first 4 KiB."""

    sha256: str
    size: int
    head: bytes


@dataclass(frozen=True)
class Usage:
    """The storage used by a tenant: number of blobs and their bytes; equal contents count once."""

    blobs: int
    bytes: int


class BlobDamaged(ApplianceError):
    """The stored bytes have changed or are missing."""


class Blobs:
    """The blobs of every tenant in one place store.

    `holders` are the tables (with columns tenant_id and sha256) whose rows refer to blobs, `place_holders` those (with a column
    place) whose rows name files in the store that are no blobs.  What no row names any more stays in the store for `keep_ms`.
    """

    def __init__(self, places: Places, holders: Iterable[str], place_holders: Iterable[str] = (), *, keep_ms: int = 0) -> None:
        self._places, self._keep_ms = places, keep_ms
        self._holders = tuple(holders)
        self._place_tables = ("blob", *place_holders)

    # -- storing

    def receiver(self) -> Receiver:
        """A receiver for bytes as they arrive; call `put_received` or `discard` afterwards."""
        return self._places.receiver()

    def put(
        self, scope: TenantScope, source: bytes | BinaryIO | Iterable[bytes], *, is_counted: bool = False
    ) -> StoredBlob:
        """Stores bytes, streamed; equal bytes of a tenant are stored once.  Slow, so do not call it inside a write.

        `is_counted` skips the quota: the bytes are assembled from contents of the tenant that are deleted afterwards.
        """
        return self.put_received(scope, self.receive(source), is_counted=is_counted)

    def receive(self, source: bytes | BinaryIO | Iterable[bytes]) -> ReceivedFile:
        """Writes bytes to the disk, streamed, without a row yet; pass the result to `put_received`, `put_all` or a `Batch`."""
        receiver = self._places.receiver()
        try:
            for piece in pieces_of(source):
                receiver.write(piece)
            return receiver.finish()
        except BaseException:
            receiver.discard()
            raise

    def put_received(self, scope: TenantScope, received: ReceivedFile, *, is_counted: bool = False) -> StoredBlob:
        """Stores a received file, which is consumed; raises StorageFull when the tenant's quota is exceeded."""
        return self.put_all(scope, [received], is_counted=is_counted)[0]

    def put_all(self, scope: TenantScope, received: Sequence[ReceivedFile], *, is_counted: bool = False) -> list[StoredBlob]:
        """Stores several received files in one write; all files are consumed, also when one is refused and none is stored."""
        try:
            contents = {each.sha256: each for each in received}
            for sha256 in self._touch_stored(scope, contents):
                del contents[sha256]
            if not is_counted:
                for each in contents.values():
                    quota.reserve(scope, each.size)
            if contents:
                places = {sha256: _new_place(scope, sha256) for sha256 in contents}
                self._places.adopt_all([(each.path, places[sha256]) for sha256, each in contents.items()])
                db.write(lambda: _record(scope, contents.values(), places))
        finally:
            for each in received:
                each.discard()
        return [StoredBlob(each.sha256, each.size, each.head) for each in received]

    def _touch_stored(self, scope: TenantScope, sha256s: Iterable[str]) -> list[str]:
        """The contents that are stored already; touches them, so that they are not collected before they are referenced."""
        rows = [row for row in _find_rows(scope, sha256s) if self._places.holds(row.place, row.size)]
        return db.write(lambda: [row.sha256 for row in rows if _touch(scope, row)]) if rows else []

    def batch(self, scope: TenantScope) -> "Batch":
        """A batch that stores many contents as they arrive."""
        return Batch(self, scope)

    def hold(self, scope: TenantScope, sha256: str) -> None:
        """Protects a blob from collection, in the write that refers to it; raises Conflict when it has been collected."""
        if not scope.update(Blob, touched_at=clock.now_ms()).where(Blob.sha256 == sha256).execute():
            raise _collected()

    # -- reading

    def read(self, scope: TenantScope, sha256: str, start: int = 0, end: int | None = None) -> Pieces:
        """Reads the bytes from `start` up to `end` in pieces, without checking them; raises BlobDamaged when they are missing."""
        row = scope.get(Blob, sha256=sha256)
        try:
            return self._places.read(row.place, start, row.size if end is None else min(end, row.size))
        except FileNotFoundError as error:
            raise _damaged(sha256) from error

    def direct_address(self, scope: TenantScope, sha256: str, download: Download) -> str | None:
        """A signed address at which the bucket itself sends the content; None when that is not allowed, or it is too small."""
        signer = self._places.signer
        if signer is None:
            return None
        row = scope.get(Blob, sha256=sha256)
        return signer.address(row.place, download) if row.size >= signer.smallest else None

    def locate(self, scope: TenantScope, sha256s: Sequence[str]) -> "dict[str, LocatedContent]":
        """Looks up the places of contents; raises Conflict when one has been collected."""
        contents = {row.sha256: LocatedContent(self._places, row.sha256, row.size, row.place) for row in _find_rows(scope, sha256s)}
        if any(sha256 not in contents for sha256 in sha256s):
            raise _collected()
        return contents

    def read_checked(self, scope: TenantScope, sha256: str) -> Iterator[bytes]:
        """Reads all bytes in pieces; raises BlobDamaged after the last one when they have changed."""
        row = scope.get(Blob, sha256=sha256)
        yield from LocatedContent(self._places, sha256, row.size, row.place).pieces()

    def read_whole(self, scope: TenantScope, sha256: str, most: int) -> bytes:
        """All bytes, verified; raises PayloadTooLarge when there are more than `most`."""
        size = scope.get(Blob, sha256=sha256).size
        if size > most:
            raise PayloadTooLarge(
                Sentence("the content has %(size)s bytes, at most %(most)s can be read at once", size=size, most=most)
            )
        return b"".join(self.read_checked(scope, sha256))

    def copy_to(self, scope: TenantScope, sha256: str, path: Path) -> None:
        """Writes all bytes, verified, to a new file, which is deleted again when they are damaged."""
        try:
            with path.open("xb") as file:
                for piece in self.read_checked(scope, sha256):
                    file.write(piece)
        except ApplianceError:
            path.unlink(missing_ok=True)
            raise

    def usage(self, scope: TenantScope) -> Usage:
        """The storage used by the tenant."""
        rows = db.rows("SELECT count(*), coalesce(sum(size), 0) FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
        return Usage(int(rows[0][0]), int(rows[0][1]))

    def stored_bytes(self) -> int:
        """The bytes stored by all tenants; shared places count once."""
        ((size,),) = db.rows("SELECT coalesce(sum(size), 0) FROM (SELECT max(size) AS size FROM blob GROUP BY place) AS places")
        return int(size)

    # -- collecting

    def collect(self) -> int:
        """Deletes blobs of every tenant that are not referenced and were not stored or held for a day; returns their number.

        Also deletes places and incoming files without a row, left by a crash or a deleted tenant, and cached copies without one.
        With `keep_ms` only the rows are deleted at once; the places are noted, and count when they are deleted.
        """
        before = clock.now_ms() - GRACE_MS
        self._places.delete_copies(self._find_named)  # first, because it works while the bucket does not
        count = 0
        while places := db.write(lambda: self._delete_unreferenced(before)):
            for place in [] if self._keep_ms else places:
                self._places.delete(place)
                count += 1
        self._places.delete_incoming(before)
        count += self._delete_strays(before)
        return count + deleted_places.delete_due(self._places.delete, self._find_named, clock.now_ms() - self._keep_ms)

    def _delete_unreferenced(self, before: int) -> list[str]:
        """Deletes rows without references and returns their places; a row that was referenced meanwhile stays; in a write."""
        unused = " ".join(
            f"AND NOT EXISTS (SELECT 1 FROM {table} h WHERE h.tenant_id = blob.tenant_id AND h.sha256 = blob.sha256)"  # noqa: S608  # names of our own
            for table in self._holders
        )
        rows = db.rows(
            f"SELECT tenant_id, sha256, place FROM blob WHERE touched_at < ? {unused} LIMIT {COLLECTED_AT_ONCE}",  # noqa: S608
            (before,),
        )
        places = [place for tenant_id, sha256, place in rows if _delete_row(tenant_id, sha256, before)]
        if self._keep_ms:
            deleted_places.note_deleted(places)
        return places

    def _delete_strays(self, before: int) -> int:
        count = 0
        for place, written_ms in self._places.walk():
            if written_ms >= before or self._find_named([place]) or deleted_places.is_noted(place):
                continue
            if self._keep_ms:  # a row that has named it is gone since an unknown moment
                db.write(lambda place=place: deleted_places.note_deleted([place]))  # type: ignore[misc]
            else:
                self._places.delete(place)
                count += 1
        return count

    def _find_named(self, places: Sequence[str]) -> set[str]:
        """Those of these places that a row names."""
        several = ", ".join("?" * len(places))
        queries = (f"SELECT place FROM {table} WHERE place IN ({several})" for table in self._place_tables)  # noqa: S608
        return {str(place) for query in queries for (place,) in db.rows(query, tuple(places))}


class Batch:
    """Stores contents many at a time; when the block ends, even by an error, all added contents are stored."""

    def __init__(self, blobs: Blobs, scope: TenantScope) -> None:
        self._blobs = blobs
        self._scope = scope
        self._waiting: list[ReceivedFile] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def add(self, received: ReceivedFile) -> None:
        """Stores a received file, now or together with later ones."""
        self._waiting.append(received)
        self._bytes += received.size
        if len(self._waiting) >= MOST_TOGETHER or self._bytes >= BYTES_TOGETHER:
            self._store()

    def __exit__(self, *_: object) -> None:
        self._store()

    def _store(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self._blobs.put_all(self._scope, waiting)


@dataclass(frozen=True)
class LocatedContent:
    """A content whose place is known, so that any thread can read it without the database."""

    places: Places
    sha256: str
    size: int
    place: str

    def pieces(self) -> Iterator[bytes]:
        """Reads all bytes in pieces; raises BlobDamaged after the last one when they have changed."""
        digest = hashlib.sha256()
        try:
            for piece in self.places.read(self.place, 0, self.size):
                digest.update(piece)
                yield piece
        except FileNotFoundError as error:
            raise _damaged(self.sha256) from error
        if digest.hexdigest() != self.sha256:
            raise _damaged(self.sha256)


def sample_contents(places: Places, count: int, largest: int) -> Iterator[tuple[str, LocatedContent]]:
    """Yields up to `count` stored contents of at most `largest` bytes, chosen at random, each with the id of its tenant."""
    sql = "SELECT tenant_id, sha256, size, place FROM blob WHERE size <= ? ORDER BY random() LIMIT ?"
    for tenant_id, sha256, size, place in db.rows(sql, (largest, count)):
        yield str(tenant_id), LocatedContent(places, sha256, size, place)


def stored_sizes(scope: TenantScope, sha256s: Iterable[str]) -> dict[str, int]:
    """The size in bytes of each of these contents that is stored."""
    sizes: dict[str, int] = {}
    for part in _parts(sha256s):
        places = ", ".join("?" * len(part))
        sql = f"SELECT sha256, size FROM blob WHERE tenant_id = ? AND sha256 IN ({places})"  # noqa: S608
        sizes |= {str(sha256): int(size) for sha256, size in db.rows(sql, (scope.tenant_id, *part))}
    return sizes


def touch_contents(scope: TenantScope, sha256s: Iterable[str]) -> None:
    """Inside a write: protects those of these contents that are stored from collection for a day."""
    for part in _parts(sha256s):
        places = ", ".join("?" * len(part))
        sql = f"UPDATE blob SET touched_at = ? WHERE tenant_id = ? AND sha256 IN ({places})"  # noqa: S608
        db.execute(sql, (clock.now_ms(), scope.tenant_id, *part))


def lend_contents(scope: TenantScope, to: TenantScope, sha256s: Iterable[str]) -> None:
    """Inside a `db.rehearsal`: let another tenant have those of these contents that are stored, too."""
    for part in _parts(sha256s):
        places = ", ".join("?" * len(part))
        sql = (
            "INSERT INTO blob (tenant_id, sha256, size, place, touched_at) SELECT ?, sha256, size, place, touched_at FROM blob "  # noqa: S608
            f"WHERE tenant_id = ? AND sha256 IN ({places})"
        )
        db.execute(sql, (to.tenant_id, scope.tenant_id, *part))


def _parts(sha256s: Iterable[str]) -> list[list[str]]:
    """The contents in an order that is the same for all transactions, in parts of as many as a statement may have parameters."""
    digests = sorted(set(sha256s))
    return [digests[start : start + _NAMES_AT_ONCE] for start in range(0, len(digests), _NAMES_AT_ONCE)]


def _find_rows(scope: TenantScope, sha256s: Iterable[str]) -> list[Blob]:
    digests = list(sha256s)
    parts = (digests[start : start + _ROWS_AT_ONCE] for start in range(0, len(digests), _ROWS_AT_ONCE))
    return [row for part in parts for row in scope.select(Blob).where(Blob.sha256.in_(part))]


def _new_place(scope: TenantScope, sha256: str) -> str:
    return f"{scope.tenant_id}/{sha256[:2]}/{sha256}.{secrets.token_hex(6)}"


def _collected() -> Conflict:
    return Conflict("the content was not used for a day and has been deleted; send it again")


def _damaged(sha256: str) -> BlobDamaged:
    log.error("A stored content is damaged or missing.", extra={"fields": {"sha256": sha256}})
    return BlobDamaged("the stored content is damaged or missing; send it again, or restore it from a backup")


def _touch(scope: TenantScope, row: Blob) -> bool:
    update = scope.update(Blob, touched_at=clock.now_ms()).where(Blob.sha256 == row.sha256, Blob.place == row.place)
    return bool(update.execute())


def _record(scope: TenantScope, received: Iterable[ReceivedFile], places: Mapping[str, str]) -> None:
    """Inserts or updates the row of each content; a previous place becomes unreferenced and is collected later."""
    now = clock.now_ms()
    for each in received:
        db.execute(
            "INSERT INTO blob (tenant_id, sha256, size, place, touched_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (tenant_id, sha256) DO UPDATE SET place = excluded.place, touched_at = excluded.touched_at",
            (scope.tenant_id, each.sha256, each.size, places[each.sha256], now),
        )


def _delete_row(tenant_id: str, sha256: str, before: int) -> bool:
    """Deletes the row unless it was touched or referenced meanwhile; whether it was deleted."""
    try:
        with db.savepoint():
            return bool(
                db.execute("DELETE FROM blob WHERE tenant_id = ? AND sha256 = ? AND touched_at < ?", (tenant_id, sha256, before))
            )
    except IntegrityError:
        return False
