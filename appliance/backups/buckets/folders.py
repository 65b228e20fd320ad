"""The backups below a prefix of a bucket, each with a checksum object, written last, without which it does not count.

An object appears in a bucket only when its upload is complete.  It is then read back, and its sha256 compared with that of the
file; only after that gets it `NAME.sha256`, in the format of `sha256sum`.  What has none is a leftover of a killed process.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from appliance.backups.problems import UNCONTROLLED, JobControl
from appliance.blobs import PART_BYTES, PARTS_AT_ONCE, UnfinishedUploads, open_bucket, refused, remote_errors
from appliance.core.config import Config
from appliance.core.config.sections import Blobs as BucketSettings
from appliance.core.errors import AlreadyExists, ApplianceError, NotFound, Overloaded
from appliance.core.sentences import Sentence

from .addresses import settings_of
from .objects import BUCKET, BucketObject

CHECKSUM = ".sha256"
UPLOADING, READING = "uploading", "reading"
MOST_PARTS = 9_000  # a bucket accepts 10,000
_PROBE = "gos-probe-"
_MIB = 1 << 20


@dataclass(frozen=True)
class StoredFile:
    """An object with its checksum object."""

    name: str
    size: int


class BucketFolder:
    """The files below a prefix of a bucket."""

    def __init__(self, settings: BucketSettings, *, retries: int = 3) -> None:
        self._store: S3Store = open_bucket(settings, "backup", retries=retries)
        self._unfinished = UnfinishedUploads(settings, BUCKET)
        self._settings = settings

    @property
    def address(self) -> str:
        """The `s3://` address of the prefix."""
        return "s3://" + "/".join(each for each in (self._settings.bucket, self._settings.prefix) if each)

    @property
    def finds_unfinished(self) -> bool:
        """Whether uploads of killed processes can be found and deleted here."""
        return self._unfinished.is_known

    def list(self) -> list[StoredFile]:
        """The files that are complete and were verified.  Overloaded when the bucket cannot be reached."""
        sizes = self._sizes()
        return [StoredFile(name, size) for name, size in sizes.items() if name + CHECKSUM in sizes]

    def find(self, name: str) -> BucketObject | None:
        """The file of a name, to read it."""
        size = {each.name: each.size for each in self.list()}.get(name)
        return None if size is None else BucketObject(self._store, f"{self.address}/{name}", name, size)

    def read_checksum(self, name: str) -> str:
        """The sha256 of a file, by its checksum object."""
        try:
            with remote_errors(BUCKET):
                content = bytes(obstore.get(self._store, name + CHECKSUM).bytes())
        except FileNotFoundError as error:
            raise NotFound(Sentence("%(address)s/%(name)s has no checksum", address=self.address, name=name)) from error
        return content[:64].decode("ascii", "replace")

    def _sizes(self) -> dict[str, int]:
        with remote_errors(BUCKET):
            objects = obstore.list_with_delimiter(self._store)["objects"]
        return {each["path"]: each["size"] for each in objects}

    def refuse_existing(self, name: str) -> None:
        """Raise AlreadyExists when there is an object of that name."""
        if name in self._sizes():
            raise AlreadyExists(Sentence(
                "%(path)s exists already and is not overwritten; name another file, or move it away",
                path=f"{self.address}/{name}",
            ))  # fmt: skip

    # -- storing

    def store(
        self, draft: Path, name: str, confirm: Callable[[], object] = lambda: None, course: JobControl = UNCONTROLLED
    ) -> None:
        """Upload a file, read it back and compare; `confirm` is called before its checksum makes it count, and may raise.

        If anything fails, nothing stays.  Overloaded, StorageFull, Stopped.
        """
        try:
            digest = self._upload(draft, name, course)
            self._compare(name, digest, draft.stat().st_size, course)
            confirm()
            line = f"{digest}  {name}\n".encode()
            with remote_errors(BUCKET):
                obstore.put(self._store, name + CHECKSUM, line, use_multipart=False)
        except BaseException:
            self._delete_failed(name)
            raise

    def _upload(self, draft: Path, name: str, course: JobControl) -> str:
        size, digest = draft.stat().st_size, hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            done = 0
            with draft.open("rb") as file:
                while piece := file.read(_MIB):
                    course.refuse_stopping()
                    digest.update(piece)
                    done += len(piece)
                    course.report(UPLOADING, done // _MIB, size // _MIB)
                    yield piece

        part = max(PART_BYTES, -(-size // MOST_PARTS))
        try:
            with remote_errors(BUCKET):
                obstore.put(
                    self._store, name, pieces(), use_multipart=True, chunk_size=part, max_concurrency=PARTS_AT_ONCE
                )  # fmt: skip
        except FileNotFoundError as error:
            raise refused(f"{BUCKET} does not exist", error) from error
        return digest.hexdigest()

    def _compare(self, name: str, digest: str, size: int, course: JobControl) -> None:
        actual, done = hashlib.sha256(), 0
        for piece in BucketObject(self._store, f"{self.address}/{name}", name, size).pieces():
            course.refuse_stopping()
            actual.update(piece)
            done += len(piece)
            course.report(READING, done // _MIB, size // _MIB)
        if actual.hexdigest() != digest:
            raise Overloaded(Sentence("%(bucket)s returned other bytes than were stored", bucket=BUCKET))

    def _delete_failed(self, name: str) -> None:
        """Delete what an upload that failed has left; if the bucket cannot be reached, the next backup does."""
        try:
            self.delete(name)
        except ApplianceError:
            return

    # -- deleting

    def delete(self, name: str) -> None:
        """Delete a file; its checksum first, so that what is left if the bucket fails does not count."""
        for each in (name + CHECKSUM, name):
            try:
                with remote_errors(BUCKET):
                    obstore.delete(self._store, each)
            except FileNotFoundError:
                continue

    def delete_leftovers(self, is_own: Callable[[str], bool], before_ms: int) -> None:
        """Delete what killed processes have left: unfinished uploads, and objects without a checksum or the reverse.

        Those whose name `is_own` at once, other unfinished uploads of backups once they were begun before that moment.
        """
        sizes = self._sizes()
        for name in sorted(sizes):
            base = name.removesuffix(CHECKSUM)
            if is_own(base) and not (base in sizes and base + CHECKSUM in sizes):
                self.delete(base)
        for upload in list(self._unfinished.list()) if self._unfinished.is_known else ():
            if is_own(upload.name) or (upload.name.endswith(".gosb") and upload.begun_at < before_ms):
                self._unfinished.abort(upload)

    def probe(self) -> None:
        """Check that objects can be written, read and deleted.  Overloaded, StorageFull."""
        name, content = f"{_PROBE}{secrets.token_hex(8)}", os.urandom(64)
        try:
            with remote_errors(BUCKET):
                obstore.put(self._store, name, content, use_multipart=False)
                received = bytes(obstore.get(self._store, name).bytes())
                obstore.delete(self._store, name)
        except FileNotFoundError as error:
            raise refused(f"{BUCKET} does not return what was just stored", error) from error
        if received != content:
            raise Overloaded(Sentence("%(bucket)s returned other bytes than were stored", bucket=BUCKET))


def open_folder(config: Config, address: str = "", *, retries: int = 3) -> BucketFolder:
    """The folder of an address, or of `backup.to`."""
    return BucketFolder(settings_of(config, address or config.backup.to), retries=retries)
