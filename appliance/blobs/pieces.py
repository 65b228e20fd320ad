"""Iterators over contents in pieces, which can also return data that is already in memory without blocking."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from .receiving import CHUNK


class Pieces(ABC, Iterator[bytes]):
    """The remaining pieces of a content."""

    @abstractmethod
    def at_hand(self) -> bytes | None:
        """The next piece if it is in memory, without blocking; None when it must be waited for or nothing is left."""


class FilePieces(Pieces):
    """The bytes of a file from `start` up to `end`; raises FileNotFoundError at once."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self._at, self._end = start, end
        self._file = path.open("rb", buffering=0)
        self._room = bytearray()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def __next__(self) -> bytes:
        self._file.seek(self._at)
        piece = self._file.read(self._next_size()) if self._at < self._end else b""
        if not piece:
            self._file.close()
            self._end = self._at
            raise StopIteration
        self._at += len(piece)
        return piece

    def at_hand(self) -> bytes | None:
        if self._at >= self._end:
            return None
        if not self._room:
            self._room = bytearray(self._next_size())
        try:
            size = os.preadv(self._file.fileno(), [memoryview(self._room)[: self._next_size()]], self._at, os.RWF_NOWAIT)
        except OSError:  # not in memory, or the file system cannot tell; a blocking read reports real errors
            return None
        self._at += size
        return bytes(memoryview(self._room)[:size]) or None

    def _next_size(self) -> int:
        return min(CHUNK, self._end - self._at)


class MemoryPieces(Pieces):
    """Bytes that are in memory."""

    def __init__(self, window: bytes) -> None:
        self._window, self._at = window, 0

    def __next__(self) -> bytes:
        piece = self.at_hand()
        if piece is None:
            raise StopIteration
        return piece

    def at_hand(self) -> bytes | None:
        piece = self._window[self._at : self._at + CHUNK]
        self._at += len(piece)
        return piece or None


class WindowPieces(MemoryPieces):
    """The bytes from `start` up to `end`, loaded in windows by `fetch(from, to)`; the first window is loaded already."""

    def __init__(self, fetch: Callable[[int, int], bytes], window: bytes, start: int, end: int) -> None:
        super().__init__(window)
        self._fetch = fetch
        self._next, self._end = start + len(window), end

    def __next__(self) -> bytes:
        if self._at >= len(self._window) and self._next < self._end:
            self._window, self._at = b"", 0  # freed first, so that two are never in memory
            self._window = self._fetch(self._next, self._end)
            self._next += len(self._window)
        return super().__next__()
