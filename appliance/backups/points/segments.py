"""A segment: a part of the write-ahead log with the times at which its commits were seen."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from appliance.backups.problems import BackupInvalid
from appliance.core.sentences import Sentence

from .archives import Archive, Segment
from .wal import FRAME_HEAD, LogHeader, parse_header

_MOST_HEAD = 8 << 20
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


def read_segment(archive: Archive, segment: Segment, previous: str | None) -> SegmentContent:
    """The content of a segment, which follows the one with the digest `previous`, if that is known; BackupInvalid otherwise."""
    with archive.store.open(segment.name) as file:
        content = _parse(b"".join(archive.sealer.unpack(segment.name, file)))
    is_right = (
        content is not None
        and (content.epoch, content.first, content.last) == (segment.epoch, segment.first, segment.last)
        and len(content.frames) % content.header.frame_size == 0
        and previous in (None, content.previous)
    )
    if content is None or not is_right:
        raise BackupInvalid(Sentence(
            "%(name)s is damaged, was changed, or does not belong there; restore to a moment before it, or use another copy of "
            "the points", name=segment.name,
        ))  # fmt: skip
    return content


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
            each.number == before.number + 1
            and (each.epoch, each.first) in ((before.epoch, before.last + 1), (before.epoch + 1, 1))
        )
        if not is_next and before is not None:
            raise BackupInvalid(Sentence(
                "a segment is missing before %(name)s; restore to a moment before it, or use another copy of the points",
                name=each.name,
            ))  # fmt: skip
        yield each
