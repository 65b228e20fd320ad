"""The blob store: put bytes, refer to them in a row of one's own, read them; what nobody refers to is collected.

Bytes come first, at a place that is used once; then their row; then, within `GRACE_MS`, a row of the caller's that
refers to it by (tenant_id, sha256), which `hold` makes certain of.  A place is deleted only after its row is gone,
and rows go only while nothing refers to them, so that at any moment every reference leads to bytes.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from peewee import IntegrityError

from appliance.core import clock, db
from appliance.core.errors import ApplianceError, Conflict, PayloadTooLarge
from appliance.core.scope import TenantScope

from . import quota
from .models import Blob
from .pieces import Pieces
from .receiving import Received, Receiver, pieces_of

log = logging.getLogger(__name__)
GRACE_MS = 24 * 3_600_000
COLLECTED_AT_ONCE = 500


class Places(Protocol):
    """Where bytes lie; `LocalPlaces` says what each verb promises."""

    def receiver(self) -> Receiver: ...
    def adopt(self, path: Path, place: str) -> None: ...
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
        receiver = self._places.receiver()
        try:
            for piece in pieces_of(source):
                receiver.write(piece)
            received = receiver.finish()
        except BaseException:
            receiver.discard()
            raise
        return self.put_received(scope, received, is_counted=is_counted)

    def put_received(self, scope: TenantScope, received: Received, *, is_counted: bool = False) -> StoredBlob:
        """Store what has arrived; its file is used up.  StorageFull when the tenant stores as much as it may."""
        stored = StoredBlob(received.sha256, received.size, received.head)
        known = scope.find(Blob, sha256=stored.sha256)
        try:
            if known is not None and self._places.holds(known.place, known.size) and db.write(lambda: _touch(scope, known)):
                return stored
            if not is_counted:
                quota.admit(scope, stored.size)
            place = f"{scope.tenant_id}/{stored.sha256[:2]}/{stored.sha256}.{secrets.token_hex(6)}"
            self._places.adopt(received.path, place)
            db.write(lambda: _record(scope, stored, place))
        finally:
            received.discard()
        return stored

    def hold(self, scope: TenantScope, sha256: str) -> None:
        """Inside the write that refers to the blob: Conflict when it has been collected since it was put."""
        if not scope.update(Blob, touched_at=clock.now_ms()).where(Blob.sha256 == sha256).execute():
            raise Conflict("the content was put long ago, was not used and is gone; send it again")

    # -- reading

    def read(self, scope: TenantScope, sha256: str, start: int = 0, end: int | None = None) -> Pieces:
        """The bytes from `start` up to `end`, a piece at a time, as they are on the disk; BlobDamaged when they are not."""
        row = scope.get(Blob, sha256=sha256)
        try:
            return self._places.read(row.place, start, row.size if end is None else min(end, row.size))
        except FileNotFoundError as error:
            raise _damaged(sha256) from error

    def read_checked(self, scope: TenantScope, sha256: str) -> Iterator[bytes]:
        """All bytes, a piece at a time; BlobDamaged after the last one unless they are the ones that were put."""
        digest = hashlib.sha256()
        for piece in self.read(scope, sha256):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != sha256:
            raise _damaged(sha256)

    def read_whole(self, scope: TenantScope, sha256: str, most: int) -> bytes:
        """All bytes, checked; PayloadTooLarge when there are more than `most`."""
        size = scope.get(Blob, sha256=sha256).size
        if size > most:
            raise PayloadTooLarge(f"the content has {size} bytes, at most {most} can be read at once")
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


def _damaged(sha256: str) -> BlobDamaged:
    log.error("stored bytes are damaged or missing", extra={"fields": {"sha256": sha256}})
    return BlobDamaged("the stored content is damaged or missing; send it again, or restore it from a backup")


def _touch(scope: TenantScope, known: Blob) -> bool:
    touched = scope.update(Blob, touched_at=clock.now_ms()).where(Blob.sha256 == known.sha256, Blob.place == known.place)
    return bool(touched.execute())


def _record(scope: TenantScope, stored: StoredBlob, place: str) -> None:
    """The row leads to the place from now on; another place that it led to is a stray."""
    db.execute(
        "INSERT INTO blob (tenant_id, sha256, size, place, touched_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, sha256) DO UPDATE SET place = excluded.place, touched_at = excluded.touched_at",
        (scope.tenant_id, stored.sha256, stored.size, place, clock.now_ms()),
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
