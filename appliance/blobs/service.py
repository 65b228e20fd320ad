"""The blob store: put bytes, refer to them in a row of one's own, read them; what nobody refers to is collected.

Bytes come first, at a place that is used once; then their row; then, within `GRACE_MS`, a row of the caller's that
refers to it by (tenant_id, sha256), which `hold` makes certain of.  A place is deleted only after its row is gone,
and rows go only while nothing refers to them, so that at any moment every reference leads to bytes.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from peewee import IntegrityError

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, PayloadTooLarge
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import quota
from .models import Blob
from .pieces import Pieces
from .receiving import Received, Receiver, pieces_of

log = logging.getLogger(__name__)
GRACE_MS = 24 * 3_600_000
COLLECTED_AT_ONCE = 500
_ROWS_AT_ONCE = 500
MOST_TOGETHER, BYTES_TOGETHER = 100, 8 << 20  # of a batch, on the disk until it is stored


class Places(Protocol):
    """Where bytes lie; `LocalPlaces` says what each verb promises."""

    def receiver(self) -> Receiver: ...
    def adopt(self, path: Path, place: str) -> None: ...
    def adopt_all(self, arrivals: Sequence[tuple[Path, str]]) -> None: ...
    def holds(self, place: str, size: int) -> bool: ...
    def read(self, place: str, start: int, end: int) -> Pieces: ...
    def delete(self, place: str) -> None: ...
    def walk(self) -> Iterator[tuple[str, int]]: ...
    def forget_incoming(self, before_ms: int) -> int: ...


@dataclass(frozen=True)
class StoredBlob:
    """Bytes that are durable, to be referred to within a day; `head` is their first 4 KiB."""

    sha256: str
    size: int
    head: bytes


@dataclass(frozen=True)
class Usage:
    """What a tenant has stored: number of blobs and their bytes, equal contents counted once."""

    blobs: int
    bytes: int


class BlobDamaged(ApplianceError):
    """What is stored is not what was put: the disk or somebody else changed it."""


class Blobs:
    """The blobs of every tenant in one place store.

    `holders` are the tables (with the columns tenant_id and sha256) whose rows refer to blobs.
    """

    def __init__(self, places: Places, holders: Iterable[str]) -> None:
        self._places = places
        self._holders = tuple(holders)

    # -- putting

    def receiver(self) -> Receiver:
        """Where an edge writes bytes as they arrive; then `put_received`, or `discard`."""
        return self._places.receiver()

    def put(
        self, scope: TenantScope, source: bytes | BinaryIO | Iterable[bytes], *, is_counted: bool = False
    ) -> StoredBlob:
        """Store bytes, streamed; equal bytes of a tenant are stored once.  Not inside a write: it takes its time.

        `is_counted`: they are made of contents of the tenant which go then, so there is room for them.
        """
        return self.put_received(scope, self.receive(source), is_counted=is_counted)

    def receive(self, source: bytes | BinaryIO | Iterable[bytes]) -> Received:
        """Write bytes to the disk, streamed, of which no row tells yet: for `put_received`, `put_all` or a `Batch`."""
        receiver = self._places.receiver()
        try:
            for piece in pieces_of(source):
                receiver.write(piece)
            return receiver.finish()
        except BaseException:
            receiver.discard()
            raise

    def put_received(self, scope: TenantScope, received: Received, *, is_counted: bool = False) -> StoredBlob:
        """Store what has arrived; its file is used up.  StorageFull when the tenant stores as much as it may."""
        return self.put_all(scope, [received], is_counted=is_counted)[0]

    def put_all(self, scope: TenantScope, received: Sequence[Received], *, is_counted: bool = False) -> list[StoredBlob]:
        """Store several that have arrived, in one write; their files are used up, also when one is refused and none is stored."""
        try:
            contents = {each.sha256: each for each in received}
            for sha256 in self._touch_known(scope, contents):
                del contents[sha256]
            if not is_counted:
                for each in contents.values():
                    quota.admit(scope, each.size)
            if contents:
                places = {sha256: _new_place(scope, sha256) for sha256 in contents}
                self._places.adopt_all([(each.path, places[sha256]) for sha256, each in contents.items()])
                db.write(lambda: _record(scope, contents.values(), places))
        finally:
            for each in received:
                each.discard()
        return [StoredBlob(each.sha256, each.size, each.head) for each in received]

    def _touch_known(self, scope: TenantScope, sha256s: Iterable[str]) -> list[str]:
        """Those that are there, and are not collected before somebody refers to them."""
        known = [row for row in _find_rows(scope, sha256s) if self._places.holds(row.place, row.size)]
        return db.write(lambda: [row.sha256 for row in known if _touch(scope, row)]) if known else []

    def batch(self, scope: TenantScope) -> "Batch":
        """To store many contents as they come."""
        return Batch(self, scope)

    def hold(self, scope: TenantScope, sha256: str) -> None:
        """Inside the write that refers to the blob: Conflict when it has been collected since it was put."""
        if not scope.update(Blob, touched_at=clock.now_ms()).where(Blob.sha256 == sha256).execute():
            raise _collected()

    # -- reading

    def read(self, scope: TenantScope, sha256: str, start: int = 0, end: int | None = None) -> Pieces:
        """The bytes from `start` up to `end`, a piece at a time, as they are on the disk; BlobDamaged when they are not."""
        row = scope.get(Blob, sha256=sha256)
        try:
            return self._places.read(row.place, start, row.size if end is None else min(end, row.size))
        except FileNotFoundError as error:
            raise _damaged(sha256) from error

    def locate(self, scope: TenantScope, sha256s: Sequence[str]) -> "dict[str, Located]":
        """Where these contents are; Conflict when one has been collected since it was put."""
        found = {row.sha256: Located(self._places, row.sha256, row.size, row.place) for row in _find_rows(scope, sha256s)}
        if any(sha256 not in found for sha256 in sha256s):
            raise _collected()
        return found

    def read_checked(self, scope: TenantScope, sha256: str) -> Iterator[bytes]:
        """All bytes, a piece at a time; BlobDamaged after the last one unless they are the ones that were put."""
        row = scope.get(Blob, sha256=sha256)
        yield from Located(self._places, sha256, row.size, row.place).pieces()

    def read_whole(self, scope: TenantScope, sha256: str, most: int) -> bytes:
        """All bytes, checked; PayloadTooLarge when there are more than `most`."""
        size = scope.get(Blob, sha256=sha256).size
        if size > most:
            raise PayloadTooLarge(
                Sentence("the content has %(size)s bytes, at most %(most)s can be read at once", size=size, most=most)
            )
        return b"".join(self.read_checked(scope, sha256))

    def copy_to(self, scope: TenantScope, sha256: str, path: Path) -> None:
        """Write all bytes, checked, to a new file; it is gone again when they are damaged."""
        try:
            with path.open("xb") as file:
                for piece in self.read_checked(scope, sha256):
                    file.write(piece)
        except ApplianceError:
            path.unlink(missing_ok=True)
            raise

    def usage(self, scope: TenantScope) -> Usage:
        """What the tenant has stored."""
        found = db.rows("SELECT count(*), coalesce(sum(size), 0) FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
        return Usage(int(found[0][0]), int(found[0][1]))

    def stored_bytes(self) -> int:
        """What all tenants have stored; what several of them have in one place counts once."""
        ((size,),) = db.rows("SELECT coalesce(sum(size), 0) FROM (SELECT max(size) AS size FROM blob GROUP BY place) AS places")
        return int(size)

    # -- collecting

    def collect(self) -> int:
        """Delete the blobs of every tenant that nothing refers to and nobody put or held for a day; answers how many.

        Then what lies about without a row: places and arrivals that a crash or a deleted tenant has left.
        """
        before = clock.now_ms() - GRACE_MS
        count = 0
        while places := db.write(lambda: self._forget_rows(before)):
            for place in places:
                self._places.delete(place)
            count += len(places)
        self._places.forget_incoming(before)
        return count + self._delete_strays(before)

    def _forget_rows(self, before: int) -> list[str]:
        """Inside a write: the places whose rows are gone now.  What refers to a row meanwhile keeps it."""
        unused = " ".join(
            f"AND NOT EXISTS (SELECT 1 FROM {table} h WHERE h.tenant_id = blob.tenant_id AND h.sha256 = blob.sha256)"  # noqa: S608  # names of our own
            for table in self._holders
        )
        found = db.rows(
            f"SELECT tenant_id, sha256, place FROM blob WHERE touched_at < ? {unused} LIMIT {COLLECTED_AT_ONCE}",  # noqa: S608
            (before,),
        )
        return [place for tenant_id, sha256, place in found if _forget(tenant_id, sha256, before)]

    def _delete_strays(self, before: int) -> int:
        count = 0
        for place, written_ms in self._places.walk():
            if written_ms < before and not db.rows("SELECT 1 FROM blob WHERE place = ?", (place,)):
                self._places.delete(place)
                count += 1
        return count


class Batch:
    """Contents on their way into the store, many in one write; whatever ends the block, those that have been added are stored."""

    def __init__(self, blobs: Blobs, scope: TenantScope) -> None:
        self._blobs = blobs
        self._scope = scope
        self._waiting: list[Received] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def add(self, received: Received) -> None:
        """Store it, now or with those that follow."""
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
class Located:
    """A content whose place has been looked up: any thread reads it, without the database."""

    places: Places
    sha256: str
    size: int
    place: str

    def pieces(self) -> Iterator[bytes]:
        """All bytes, a piece at a time; BlobDamaged after the last one unless they are the ones that were put."""
        digest = hashlib.sha256()
        try:
            for piece in self.places.read(self.place, 0, self.size):
                digest.update(piece)
                yield piece
        except FileNotFoundError as error:
            raise _damaged(self.sha256) from error
        if digest.hexdigest() != self.sha256:
            raise _damaged(self.sha256)


def _find_rows(scope: TenantScope, sha256s: Iterable[str]) -> list[Blob]:
    wanted = list(sha256s)
    parts = (wanted[start : start + _ROWS_AT_ONCE] for start in range(0, len(wanted), _ROWS_AT_ONCE))
    return [row for part in parts for row in scope.select(Blob).where(Blob.sha256.in_(part))]


def _new_place(scope: TenantScope, sha256: str) -> str:
    return f"{scope.tenant_id}/{sha256[:2]}/{sha256}.{secrets.token_hex(6)}"


def _collected() -> Conflict:
    return Conflict("the content was put long ago, was not used and is gone; send it again")


def _damaged(sha256: str) -> BlobDamaged:
    log.error("stored bytes are damaged or missing", extra={"fields": {"sha256": sha256}})
    return BlobDamaged("the stored content is damaged or missing; send it again, or restore it from a backup")


def _touch(scope: TenantScope, known: Blob) -> bool:
    touched = scope.update(Blob, touched_at=clock.now_ms()).where(Blob.sha256 == known.sha256, Blob.place == known.place)
    return bool(touched.execute())


def _record(scope: TenantScope, stored: Iterable[Received], places: Mapping[str, str]) -> None:
    """The row of each leads to its place from now on; another place that it led to is a stray."""
    now = clock.now_ms()
    for each in stored:
        db.execute(
            "INSERT INTO blob (tenant_id, sha256, size, place, touched_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (tenant_id, sha256) DO UPDATE SET place = excluded.place, touched_at = excluded.touched_at",
            (scope.tenant_id, each.sha256, each.size, places[each.sha256], now),
        )


def _forget(tenant_id: str, sha256: str, before: int) -> bool:
    """Whether the row is gone: not when somebody has touched it or refers to it since it was found."""
    try:
        with db.savepoint():
            return bool(
                db.execute("DELETE FROM blob WHERE tenant_id = ? AND sha256 = ? AND touched_at < ?", (tenant_id, sha256, before))
            )
    except IntegrityError:
        return False
