"""Archives of points in an S3-compatible bucket."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import obstore

from appliance.backups.buckets.addresses import settings_of
from appliance.backups.buckets.objects import BUCKET, BucketObject
from appliance.blobs import PART_BYTES, PARTS_AT_ONCE, open_bucket, refused, remote_errors
from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence

from .stores import StoredFile


class BucketStore:
    """Objects below the prefix of an `s3://` address."""

    def __init__(self, config: Config, address: str, *, retries: int) -> None:
        self.address = address.rstrip("/")
        self._store = open_bucket(settings_of(config, address), "backup", retries=retries)

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        """Store an object, in parts if it is large; returns its size.  Overloaded, StorageFull."""
        iterator, start, size = iter(pieces), bytearray(), 0
        for piece in iterator:
            start += piece
            if len(start) > PART_BYTES:
                break
        size = len(start)

        def rest() -> Iterator[bytes]:
            nonlocal size
            yield bytes(start)
            for piece in iterator:
                size += len(piece)
                yield piece

        try:
            with remote_errors(BUCKET):
                if size > PART_BYTES:
                    obstore.put(
                        self._store, name, rest(), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
                    )  # fmt: skip
                else:
                    obstore.put(self._store, name, bytes(start), use_multipart=False)
        except FileNotFoundError as error:
            raise refused(f"{BUCKET} does not exist", error) from error
        return size

    def open(self, name: str) -> BinaryIO:
        """The object, to read it; NotFound, Overloaded."""
        try:
            with remote_errors(BUCKET):
                size = obstore.head(self._store, name)["size"]
        except FileNotFoundError as error:
            raise NotFound(Sentence("%(name)s is missing in %(place)s", name=name, place=self.address)) from error
        return BucketObject(self._store, f"{self.address}/{name}", name, size).open()

    def has(self, name: str) -> bool:
        """Whether there is an object of that name."""
        try:
            with remote_errors(BUCKET):
                obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        """The objects below a prefix."""
        with remote_errors(BUCKET):
            for objects in obstore.list(self._store, prefix.rstrip("/") or None):
                for each in objects:
                    yield StoredFile(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000))

    def tidy(self, prefix: str) -> None:
        """Nothing: an object is there whole or not at all.  Unfinished uploads end by a rule of the bucket."""

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""
        try:
            with remote_errors(BUCKET):
                obstore.delete(self._store, name)
        except FileNotFoundError:
            return
