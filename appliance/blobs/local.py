"""Places of bytes in a local folder: one file each, complete or absent."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .pieces import FilePieces, Pieces
from .receiving import Receiver

INCOMING = "incoming"


class LocalPlaces:
    """The contract of a place store: a place is written once, whole, and never changed.

    A place is a relative path that its caller makes unique.  What arrives lies in `incoming` on the same file system
    until it is adopted, so that adopting is a rename.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)

    def receiver(self) -> Receiver:
        """Somewhere to write bytes that are arriving."""
        return Receiver(self._incoming / secrets.token_hex(16))

    def adopt(self, path: Path, place: str) -> None:
        """Make the received, durable file the content of the place; durable when this returns."""
        self.adopt_all([(path, place)])

    def adopt_all(self, arrivals: Sequence[tuple[Path, str]]) -> None:
        """Likewise for many, whose folders are written together: that takes hardly longer than for one."""
        targets = [self._folder / place for _, place in arrivals]
        is_first = any(not target.parent.parent.exists() for target in targets)
        for (path, _), target in zip(arrivals, targets, strict=True):
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
        """The bytes from `start` up to `end`, a piece at a time; FileNotFoundError before the first."""
        return FilePieces(self._folder / place, start, end)

    def delete(self, place: str) -> None:
        """The place is empty afterwards; it may be so already."""
        (self._folder / place).unlink(missing_ok=True)

    def walk(self) -> Iterator[tuple[str, int]]:
        """Every place with content and the milliseconds of its writing."""
        for folder, names, files in os.walk(self._folder):
            if Path(folder) == self._folder and INCOMING in names:
                names.remove(INCOMING)
            for name in files:
                path = Path(folder, name)
                try:
                    yield str(path.relative_to(self._folder)), path.stat().st_mtime_ns // 1_000_000
                except FileNotFoundError:  # deleted while we walked
                    continue

    def forget_incoming(self, before_ms: int) -> int:
        """Delete what began to arrive, and was last written before this moment; answers how many files."""
        count = 0
        with os.scandir(self._incoming) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it has arrived while we looked
                    if entry.stat().st_mtime_ns // 1_000_000 < before_ms:
                        Path(entry.path).unlink()
                        count += 1
        return count


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
