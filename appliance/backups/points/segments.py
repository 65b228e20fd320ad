"""A segment: a part of the write-ahead log with the times at which its commits were seen.

A merged file has several, each behind its length; each refers to the one before by its digest, as they do in files of their own.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from appliance.backups.problems import BackupInvalid
from appliance.core.sentences import Sentence

from .archives import Archive, Segment
from .wal import FRAME_HEAD, LogHeader, parse_header

_MOST_HEAD = 8 << 20
_MOST_BYTES = 256 << 20
START = "0" * 64
"""What the first segment of a chain has as the digest of the one before."""


@dataclass(frozen=True)
class Mark:
    """A point: the commit that ends with the frame was seen at the time (epoch ms), and happened after the mark before."""

    frame: int
    time: int


@dataclass(frozen=True)
class SegmentContent:
    """What is in a segment; `previous` is the digest of the segment before, so that none is left out or of another time."""

    epoch: int
    first: int
    header: LogHeader
    marks: tuple[Mark, ...]
    previous: str
    frames: bytes

    @property
    def last(self) -> int:
        return self.first + len(self.frames) // self.header.frame_size - 1

    def _pack_head(self) -> bytes:
        head = {
            "epoch": self.epoch, "first": self.first, "header": base64.b64encode(self.header.raw).decode(),
            "marks": [[mark.frame, mark.time] for mark in self.marks], "previous": self.previous,
        }  # fmt: skip
        return json.dumps(head, separators=(",", ":")).encode()

    def pack(self) -> Iterator[bytes]:
        head = self._pack_head()
        yield len(head).to_bytes(4, "big") + head
        yield self.frames

    def digest(self) -> str:
        """The digest of the head and of the last frame's head, in which SQLite has the checksum of all frames until there."""
        last = len(self.frames) - self.header.frame_size
        return hashlib.sha256(self._pack_head() + self.frames[last : last + FRAME_HEAD]).hexdigest()


def read_segments(archive: Archive, segment: Segment) -> Iterator[tuple[int, SegmentContent]]:
    """The segments in a file with their numbers, each the one after the one before; BackupInvalid, NotFound."""
    previous: SegmentContent | None = None
    number = segment.number - 1
    for data in _read_items(archive, segment):
        content, number = _parse(data), number + 1
        if content is None or not _is_next(segment, previous, content) or number > segment.last_number:
            raise damaged_segment(segment)
        previous = content
        yield number, content
    if previous is None or (number, previous.epoch, previous.last) != (segment.last_number, segment.epoch, segment.last):
        raise damaged_segment(segment)


def pack_segments(items: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a merged file from what its segments have in files of their own."""
    for item in items:
        yield len(item).to_bytes(4, "big")
        yield item


def damaged_segment(segment: Segment) -> BackupInvalid:
    return BackupInvalid(Sentence(
        "%(name)s is damaged, was changed, or does not belong there; restore to a moment before it, or use another copy of "
        "the points", name=segment.name,
    ))  # fmt: skip


def _is_next(segment: Segment, previous: SegmentContent | None, content: SegmentContent) -> bool:
    """Whether a content is whole, and follows the one before, or is the first one that the name of the file says."""
    if not content.frames or len(content.frames) % content.header.frame_size:
        return False
    if previous is None:
        return (content.epoch, content.first) == (segment.first_epoch, segment.first)
    follows = (content.epoch, content.first) in ((previous.epoch, previous.last + 1), (previous.epoch + 1, 1))
    return follows and content.previous == previous.digest()


def _read_items(archive: Archive, segment: Segment) -> Iterator[bytes]:
    """What each segment of a file has, as it is in a file of its own."""
    if segment.level and not archive.is_encrypted:  # its end says whether it is unchanged
        with archive.store.open(segment.name) as file:
            for _ in archive.sealer.unpack(segment.name, file):
                pass
    with archive.store.open(segment.name) as file:
        pieces = archive.sealer.unpack(segment.name, file)
        if segment.level == 0:
            yield b"".join(pieces)
            return
        buffer = bytearray()
        for piece in pieces:
            buffer += piece
            while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
                item = bytes(buffer[4 : 4 + size])
                del buffer[: 4 + size]
                yield item
            if len(buffer) > _MOST_BYTES:
                break
        if buffer:
            raise damaged_segment(segment)


def _parse(data: bytes) -> SegmentContent | None:
    size = int.from_bytes(data[:4], "big")
    if size > _MOST_HEAD:
        return None
    try:
        head: dict[str, Any] = json.loads(data[4 : 4 + size])
        header = parse_header(base64.b64decode(head["header"]))
        marks = tuple(Mark(int(frame), int(time)) for frame, time in head["marks"])
        numbers = int(head["epoch"]), int(head["first"])
        previous = str(head["previous"])
    except (ValueError, KeyError, TypeError):
        return None
    return None if header is None else SegmentContent(*numbers, header, marks, previous, data[4 + size :])


def in_order(segments: tuple[Segment, ...]) -> Iterator[Segment]:
    """The segments, each after the one before; BackupInvalid when one is missing."""
    for before, each in zip((None, *segments), segments, strict=False):
        is_next = before is None or (
            each.number == before.last_number + 1
            and (each.first_epoch, each.first) in ((before.epoch, before.last + 1), (before.epoch + 1, 1))
        )
        if not is_next and before is not None:
            raise BackupInvalid(Sentence(
                "a segment is missing before %(name)s; restore to a moment before it, or use another copy of the points",
                name=each.name,
            ))  # fmt: skip
        yield each
