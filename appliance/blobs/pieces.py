"""Bytes on their way out, a piece at a time: some take their time, some are at hand."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from .receiving import CHUNK


class Pieces(ABC, Iterator[bytes]):
    """What is left of a content."""

    @abstractmethod
    def at_hand(self) -> bytes | None:
        """The next piece if it is in memory already, so that an event loop may ask; None when it must be waited for, or there
        is no more."""


class FilePieces(Pieces):
    """The bytes of a file from `start` up to `end`; FileNotFoundError at once."""

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
        except OSError:  # not in memory, or not on a file system that could tell: whoever waits for it hears more
            return None
        self._at += size
        return bytes(memoryview(self._room)[:size]) or None

    def _next_size(self) -> int:
        return min(CHUNK, self._end - self._at)


class WindowPieces(Pieces):
    """The bytes from `start` up to `end` by windows that `fetch` gets (from, to); the first one is there already."""

    def __init__(self, fetch: Callable[[int, int], bytes], window: bytes, start: int, end: int) -> None:
        self._fetch = fetch
        self._window, self._at = window, 0
        self._next, self._end = start + len(window), end

    def __next__(self) -> bytes:
        if self._at >= len(self._window) and self._next < self._end:
            self._window, self._at = b"", 0  # two are never held at once
            self._window = self._fetch(self._next, self._end)
            self._next += len(self._window)
        piece = self.at_hand()
        if piece is None:
            raise StopIteration
        return piece

    def at_hand(self) -> bytes | None:
        piece = self._window[self._at : self._at + CHUNK]
        self._at += len(piece)
        return piece or None
