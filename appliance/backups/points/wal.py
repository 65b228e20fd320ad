"""Reads the write-ahead log of an SQLite database as it grows: its epochs, its frames and where commits end.

The format is that of https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of 24 bytes and a page.
The log begins again from its start with other salts, which is the next epoch, once everything in it is in the database.  The file
is opened on its own, which is safe because SQLite holds no locks on it.
"""

import os
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HEADER, FRAME_HEAD = 32, 24
_MAGIC, _BIG_ENDIAN, _VERSION = 0x377F0682, 1, 3_007_000
_MASK = 0xFFFFFFFF
_ALL_CHECKED = 8  # frames of which every checksum is computed; of more at once, those of the first and the last
_READ_FRAMES = 64


class LogChanged(Exception):
    """The log is not what was read before: frames were lost or written anew, so that what follows needs another base."""


@dataclass(frozen=True)
class LogHeader:
    """The header of the log."""

    raw: bytes

    @cached_property
    def page_size(self) -> int:
        size: int = struct.unpack_from(">I", self.raw, 8)[0]
        return 65_536 if size == 1 else size

    @cached_property
    def salts(self) -> bytes:
        return self.raw[16:24]

    @cached_property
    def checksum(self) -> tuple[int, int]:
        first, second = struct.unpack_from(">II", self.raw, 24)
        return first, second

    @cached_property
    def frame_size(self) -> int:
        return FRAME_HEAD + self.page_size

    def add(self, checksum: tuple[int, int], data: bytes) -> tuple[int, int]:
        """The checksum of what came before and `data`, whose length is a multiple of 8."""
        order = ">" if struct.unpack_from(">I", self.raw)[0] & _BIG_ENDIAN else "<"
        words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
        first, second = checksum
        for even, odd in zip(words, words, strict=True):
            first = (first + even + second) & _MASK
            second = (second + odd + first) & _MASK
        return first, second

    def follows(self, former: "LogHeader") -> bool:
        """Whether this is the epoch right after another: SQLite adds one to the first salt."""
        salt, salt_before = (struct.unpack_from(">I", each.raw, 16)[0] for each in (self, former))
        return bool(salt == (salt_before + 1) & _MASK)


def parse_header(raw: bytes) -> LogHeader | None:
    """The header of a log; None if there is none yet, or it is being written."""
    if len(raw) < HEADER:
        return None
    magic, version = struct.unpack_from(">II", raw)
    header = LogHeader(raw[:HEADER])
    if magic & ~_BIG_ENDIAN != _MAGIC or version != _VERSION or header.add((0, 0), raw[:24]) != header.checksum:
        return None
    return header


class LogReader:
    """Where the commits in the log end, as far as they were seen: `epoch` and `frame`, the number of frames until there.

    The epochs are counted from 0, the one at the first `look`.  What was seen stays in the file as long as a reader of the
    database holds it (`holding.py`).
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}-wal")
        self._descriptor = -1
        self.header: LogHeader | None = None
        self.epoch, self.frame = 0, 0
        self._last_head = b""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def look(self) -> bool:
        """Look for new commits; whether there are any.  LogChanged if what was seen before is no longer there."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        header = parse_header(os.pread(self._descriptor, HEADER, 0))
        if header is None:
            if self.frame and os.fstat(self._descriptor).st_size == 0:
                raise LogChanged("the log was truncated")
            return False
        is_first = self.header is None
        if self.header is None or header.raw != self.header.raw:
            if self.header is not None:
                if not header.follows(self.header):
                    raise LogChanged("the log began again more than once since it was last read")
                self.epoch += 1
            self.header, self.frame, self._last_head = header, 0, b""
        elif self.frame and os.pread(self._descriptor, FRAME_HEAD, self._offset(self.frame - 1)) != self._last_head:
            raise LogChanged("a commit in the log was written anew")
        return self._advance(header, is_first=is_first)

    def read(self, first: int, last: int) -> bytes:
        """The bytes of the frames `first` to `last`, counted from 1; LogChanged if they are not there."""
        if self.header is None:
            raise LogChanged("the log is gone")
        size = (last - first + 1) * self.header.frame_size
        data = os.pread(self._descriptor, size, self._offset(first - 1))
        if len(data) != size or data[8:16] != self.header.salts or data[-self.header.page_size - 16 :][:8] != self.header.salts:
            raise LogChanged("the log is shorter than before")
        return data

    def _offset(self, index: int) -> int:
        return HEADER + index * (self.header.frame_size if self.header else 0)

    def _advance(self, header: LogHeader, *, is_first: bool) -> bool:
        """Go on to the end of the last commit whose frames are all there."""
        ends = self._find_ends(header)
        if is_first:  # There may be frames of a killed process behind the last commit, so all are checked, as SQLite does.
            ends = self._valid_ends(header, ends)
        while ends and not self._is_written(header, ends[-1]):
            ends.pop()  # its page is being written
        if not ends:
            return False
        self.frame = ends[-1]
        self._last_head = os.pread(self._descriptor, FRAME_HEAD, self._offset(self.frame - 1))
        return True

    def _find_ends(self, header: LogHeader) -> list[int]:
        """The frames after the last one that end a commit, by their heads alone."""
        ends, number = list[int](), self.frame
        salts, size, offset, descriptor = header.salts, header.frame_size, self._offset(number), self._descriptor
        while True:  # for each frame that is written: nothing is computed twice
            head = os.pread(descriptor, FRAME_HEAD, offset)
            if len(head) < FRAME_HEAD or head[8:16] != salts:
                return ends
            number, offset = number + 1, offset + size
            if head[4:8] != b"\0\0\0\0":
                ends.append(number)

    def _is_written(self, header: LogHeader, end: int) -> bool:
        """Whether a commit's frames are there with their pages: they are written one after the other.

        All checksums are computed if there are few; else that of the first, which shows that they follow what was seen, and of
        the last.
        """
        start = self.frame
        if end - start <= _ALL_CHECKED:
            return self._valid_ends(header, [end]) == [end]
        return self._is_valid(header, start) and self._is_valid(header, end - 1)

    def _is_valid(self, header: LogHeader, index: int) -> bool:
        data = os.pread(self._descriptor, header.frame_size, self._offset(index))
        return len(data) == header.frame_size and self._sum(header, self._sum_before(header, index), data) == _sum_in(data)

    def _sum_before(self, header: LogHeader, index: int) -> tuple[int, int]:
        if index == 0:
            return header.checksum
        return _sum_in(os.pread(self._descriptor, FRAME_HEAD, self._offset(index - 1)))

    def _sum(self, header: LogHeader, before: tuple[int, int], frame: bytes) -> tuple[int, int]:
        return header.add(header.add(before, frame[:8]), frame[FRAME_HEAD:])

    def _valid_ends(self, header: LogHeader, ends: list[int]) -> list[int]:
        """Those of the ends before which every frame has the checksum of all that came before it."""
        if not ends:
            return []
        checksum, number = self._sum_before(header, self.frame), self.frame
        while number < ends[-1]:
            data = os.pread(self._descriptor, header.frame_size * _READ_FRAMES, self._offset(number))
            for at in range(0, len(data) - header.frame_size + 1, header.frame_size):
                frame = data[at : at + header.frame_size]
                checksum = self._sum(header, checksum, frame)
                if frame[8:16] != header.salts or checksum != _sum_in(frame):
                    return [end for end in ends if end <= number]
                number += 1
            if len(data) < header.frame_size:
                break
        return [end for end in ends if end <= number]


def _sum_in(frame: bytes) -> tuple[int, int]:
    first, second = struct.unpack_from(">II", frame, 16)
    return first, second
