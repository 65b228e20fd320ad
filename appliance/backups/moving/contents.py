"""Copies contents from one store to another; every one is read again at the target and compared with its sha256."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from appliance.backups.copying import Source
from appliance.blobs import BYTES_TOGETHER, MOST_TOGETHER, Places, ReceivedFile
from appliance.core.sentences import Sentence

from .problems import MoveFailed, Report


@dataclass(frozen=True)
class Content:
    """A content that a row of the database names."""

    place: str
    sha256: str
    size: int


@dataclass
class CopiedContents:
    """The contents that are whole at the target, those of them that were copied now, and those that the source has damaged."""

    count: int = 0
    copied: int = 0
    damaged: list[str] = field(default_factory=list)


def copy_contents(source: Source, origin: Places, target: Places, report: Report) -> CopiedContents:
    """Copies what the target lacks or has damaged.  MoveFailed if a content differs after it was stored."""
    done, batch = CopiedContents(), _Batch(target)
    ((total,),) = source.rows("SELECT count(DISTINCT place) FROM blob")
    for place, sha256, size in source.rows("SELECT DISTINCT place, sha256, size FROM blob ORDER BY place"):
        content = Content(str(place), str(sha256), int(size))
        if not is_whole(target, content):
            received = _receive(origin, target, content)
            if received is None:
                done.damaged.append(content.place)
                continue
            batch.add(content, received)
            done.copied += 1
        done.count += 1
        report("contents", done.count, int(total))
    batch.store()
    return done


def is_whole(places: Places, content: Content) -> bool:
    """Whether the place has exactly the content; reads all of it."""
    if not places.holds(content.place, content.size):
        return False
    digest = hashlib.sha256()
    try:
        for piece in places.read(content.place, 0, content.size):
            digest.update(piece)
    except FileNotFoundError:
        return False
    return digest.hexdigest() == content.sha256


def _receive(origin: Places, target: Places, content: Content) -> ReceivedFile | None:
    """The content in a file of the target; None if the source has lost or changed it."""
    receiver = target.receiver()
    try:
        for piece in origin.read(content.place, 0, content.size):
            receiver.write(piece)
        received = receiver.finish()
    except FileNotFoundError:
        receiver.discard()
        return None
    except BaseException:
        receiver.discard()
        raise
    if received.sha256 != content.sha256:
        received.discard()
        return None
    return received


class _Batch:
    """Received contents that are stored together, because a disk syncs many as quickly as one, and a bucket takes several."""

    def __init__(self, target: Places) -> None:
        self._target = target
        self._waiting: list[tuple[Content, ReceivedFile]] = []

    def add(self, content: Content, received: ReceivedFile) -> None:
        self._waiting.append((content, received))
        if len(self._waiting) >= MOST_TOGETHER or sum(each.size for each, _ in self._waiting) >= BYTES_TOGETHER:
            self.store()

    def store(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._target.adopt_all([(received.path, content.place) for content, received in waiting])
        finally:
            for _, received in waiting:
                received.discard()
        _refuse_damaged(self._target, [content for content, _ in waiting])


def _refuse_damaged(target: Places, contents: Sequence[Content]) -> None:
    for content in contents:
        if not is_whole(target, content):
            raise MoveFailed(Sentence(
                "the content %(place)s differs at the target from what was just stored there; check its disk or bucket, then run "
                "the same command again: it is copied anew", place=content.place,
            ))
