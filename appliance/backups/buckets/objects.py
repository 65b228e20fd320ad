"""Reads one object of a bucket as if it was a file, in windows, without a copy on the disk."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import obstore
from obstore.store import S3Store

from appliance.blobs import open_bucket, remote_errors
from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence

from .addresses import parse_object, settings_of

WINDOW = 8 << 20
BUCKET = "the bucket of the backups"


class _PiecesFile(io.RawIOBase):
    """A file that is read once from its start, from pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


@dataclass(frozen=True)
class BucketObject:
    """An object of a bucket; `address` is its `s3://` address, which it prints."""

    store: S3Store
    address: str
    name: str
    size: int

    def __str__(self) -> str:
        return self.address

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        """The object as a file; Overloaded, from any read too, when the bucket fails, NotFound when it was deleted."""
        return io.BufferedReader(_PiecesFile(self.pieces()), buffer_size=1 << 20)

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the object."""
        for start in range(0, self.size, WINDOW):
            try:
                with remote_errors(BUCKET):
                    window = obstore.get_range(self.store, self.name, start=start, end=min(self.size, start + WINDOW))
            except FileNotFoundError as error:
                raise _missing(self.address) from error
            yield bytes(window)


def find_object(config: Config, address: str) -> BucketObject:
    """The object of an address; NotFound, or Overloaded when the bucket cannot be reached."""
    folder, name = parse_object(address)
    store = open_bucket(settings_of(config, folder), "backup")
    try:
        with remote_errors(BUCKET):
            size = obstore.head(store, name)["size"]
    except FileNotFoundError as error:
        raise _missing(address) from error
    return BucketObject(store, address, name, size)


def _missing(address: str) -> NotFound:
    return NotFound(Sentence("there is no backup %(address)s; list them with `gos backup list`", address=address))
