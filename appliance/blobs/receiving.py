"""Receives bytes into a private file while computing their size and sha256 and keeping the first bytes."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from appliance.core.errors import StorageFull

HEAD_BYTES = 4096
CHUNK = 1 << 18


@dataclass(frozen=True)
class ReceivedFile:
    """A received file, owned by the caller; `head` is its first 4 KiB."""

    path: Path
    sha256: str
    size: int
    head: bytes

    def open(self) -> BinaryIO:
        return self.path.open("rb")

    def discard(self) -> None:
        """Deletes the file unless it has been stored."""
        self.path.unlink(missing_ok=True)


class Receiver:
    """Writes pieces to a file; `finish` returns it, `discard` deletes it.  Raises StorageFull when the disk is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self._head = b""
        self.size = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, piece: bytes) -> None:
        with _disk_errors():
            view = memoryview(piece)
            while view:
                view = view[self._file.write(view) :]
        self._digest.update(piece)
        self.size += len(piece)
        if len(self._head) < HEAD_BYTES:
            self._head += piece[: HEAD_BYTES - len(self._head)]

    def finish(self, *, durable: bool = True) -> ReceivedFile:
        """Completes the file; with `durable` it is synced to the disk."""
        with _disk_errors():
            if durable:
                os.fsync(self._file.fileno())
            self._file.close()
        return ReceivedFile(self._path, self._digest.hexdigest(), self.size, self._head)

    def discard(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFull("the disk of the appliance is full or failing; free space and try again") from error


def pieces_of(source: bytes | BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a bytes object, a file or an iterable, in pieces."""
    if isinstance(source, bytes):
        yield source
    elif hasattr(source, "read"):
        while piece := source.read(CHUNK):
            yield piece
    else:
        yield from source
