"""Stores contents in a local folder, one file each, complete or absent."""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .pieces import FilePieces, Pieces
from .receiving import Receiver
from .signing import AddressSigner

INCOMING = "incoming"


class LocalPlaces:
    """A store of contents by place: each place is written once, completely, and never changed.

    A place is a relative path that the caller makes unique.  Incoming files are in `incoming` on the same file system until
    they are adopted, so that adopting is a rename.  `signer` signs addresses for direct downloads, if there are any.
    """

    signer: AddressSigner | None = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)

    def receiver(self) -> Receiver:
        """A receiver for incoming bytes."""
        return Receiver(self._incoming / secrets.token_hex(16))

    def adopt(self, path: Path, place: str) -> None:
        """Makes a received, durable file the content of the place; the new name is durable when this returns."""
        self.adopt_all([(path, place)])

    def adopt_all(self, files: Sequence[tuple[Path, str]]) -> None:
        """The same for many files; syncing their folders together takes hardly longer than for one."""
        targets = [self._folder / place for _, place in files]
        is_first = any(not target.parent.parent.exists() for target in targets)
        for (path, _), target in zip(files, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.rename(target)
        inner, outer = [target.parent for target in targets], [target.parent.parent for target in targets]
        for folder in dict.fromkeys((*inner, *outer, *([self._folder] if is_first else []))):
            _sync_folder(folder)

    def holds(self, place: str, size: int) -> bool:
        """Whether the place has content of this size."""
        try:
            return (self._folder / place).stat().st_size == size
        except FileNotFoundError:
            return False

    def read(self, place: str, start: int, end: int) -> Pieces:
        """Reads the bytes from `start` up to `end` in pieces; raises FileNotFoundError before the first."""
        return FilePieces(self._folder / place, start, end)

    def delete(self, place: str) -> None:
        """Deletes the content of the place, if there is any."""
        (self._folder / place).unlink(missing_ok=True)

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yields every place with content and when it was written (epoch ms)."""
        for folder, names, files in os.walk(self._folder):
            if Path(folder) == self._folder and INCOMING in names:
                names.remove(INCOMING)
            for name in files:
                path = Path(folder, name)
                try:
                    yield str(path.relative_to(self._folder)), path.stat().st_mtime_ns // 1_000_000
                except FileNotFoundError:  # deleted meanwhile
                    continue

    def delete_incoming(self, before_ms: int) -> int:
        """Deletes incoming files last written before this moment; returns their number."""
        count = 0
        with os.scandir(self._incoming) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # adopted meanwhile
                    if entry.stat().st_mtime_ns // 1_000_000 < before_ms:
                        Path(entry.path).unlink()
                        count += 1
        return count

    def delete_copies(self, find_named: Callable[[Sequence[str]], set[str]]) -> None:
        """Deletes copies of contents, kept to read them faster, whose places `find_named` does not return; there are none."""


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
