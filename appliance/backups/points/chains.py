"""Ships one chain: reads the write-ahead log while it is held, and stores its commits as segments, in order."""

import threading
from pathlib import Path

from appliance.backups.problems import ShouldStop
from appliance.core import clock
from appliance.core.database import db

from .archives import CHAINS, Archive, new_chain_name, parse_segment, segment_name, through_name
from .bases import BaseRequest
from .contents import ContentShipper
from .holding import LogHold
from .merging import ChainMerger
from .segments import START, Mark, SegmentContent
from .wal import LogChanged, LogReader

SEGMENT_BYTES = 8 << 20
RESTART_FRAMES = 4_000  # 16 MiB with pages of 4 KiB; then the log begins again
_REST_FRAMES = 500  # read while the writer waits, at most
_SET_BACK_MS = 2_000  # a clock that is set back further begins another chain


class ChainShipper:
    """A chain from its creation on; one thread ships it, and others may `look`, so that times are right while it does.

    `through` is until when everything was shipped (epoch ms): each commit before it.  `merger` merges what was stored.
    """

    def __init__(self, database: Path, archive: Archive, contents: ContentShipper, should_stop: ShouldStop) -> None:
        self._archive, self._contents = archive, contents
        self._started_at = clock.now_ms()
        self.name = new_chain_name(self._started_at)
        self.merger = ChainMerger(archive, self.name, should_stop)
        self._log = LogReader(database)
        self._hold = LogHold(database)
        self._marks: list[Mark] = []
        self._ready: list[SegmentContent] = []
        self._read = self._number = self._epoch = 0
        self._previous, self._last_time = START, self._started_at
        self._restart_at = RESTART_FRAMES
        self._looked_at = self.through = 0
        self._lock = threading.RLock()
        self._break: LogChanged | None = None

    def close(self) -> None:
        self.merger.stop()
        self._hold.close()
        self._log.close()

    @property
    def has_new(self) -> bool:
        """Whether there is something to ship."""
        with self._lock:
            return bool(self._ready) or self._log.frame > self._read

    @property
    def held_bytes(self) -> int:
        """The bytes that are not shipped yet."""
        waiting = (self._log.frame - self._read) * (self._log.header.frame_size if self._log.header else 0)
        return waiting + sum(len(content.frames) for content in self._ready)

    def look(self) -> None:
        """Note the commits that are new, with the time.  LogChanged, from now on, when the chain cannot go on."""
        with self._lock:
            if self._break is not None:
                raise self._break
            try:
                self._look()
            except LogChanged as error:
                self._break = error
                raise

    def _look(self) -> None:
        before, end = clock.now_ms(), self._log.frame
        is_new = self._log.look()
        if self._log.epoch != self._epoch:
            if self._read != end or self._marks:
                raise LogChanged("the log began again before its end was read")
            self._epoch, self._read, self._restart_at = self._log.epoch, 0, RESTART_FRAMES
        now = clock.now_ms()
        if now < self._last_time - _SET_BACK_MS:
            raise LogChanged("the clock was set back")
        self._looked_at = before
        if is_new:
            self._last_time = max(now, self._last_time)
            self._marks.append(Mark(self._log.frame, self._last_time))

    def ship(self) -> None:
        """Store everything that was seen, with the contents that it names; the rest is tried again by the next call."""
        with self._lock:
            seen_at, end, has_new = self._looked_at, self._log.frame, self.has_new
        if has_new:
            db.write(_wait_for_commits)
            self._contents.ship_new(self._hold.reader)  # also those of the commits until `end`
            self._store_ready()
            while self._read < end:
                self._ready.append(self._take(min(self._most_frames(), end - self._read)))
                self._store_ready()
            self._hold.renew()
        self.through = max(self.through, seen_at)

    def note_through(self) -> None:
        """Store until when the chain is complete, for times at which nothing changes."""
        self._archive.store.put(through_name(self._archive, self.name), [str(self.through).encode()])

    def restart_log(self) -> None:
        """Have the log begin again if it has become long, once everything in it was read; the next `ship` stores that."""
        if self._log.frame >= self._restart_at:
            self._restart_at = self._log.frame + RESTART_FRAMES // 4
            for _ in range(2):  # Nearly everything, while the writer goes on: the second time there is little left.
                self._hold.checkpoint()
                self.look()
                while self._read < self._log.frame:
                    self._ready.append(self._take(self._most_frames()))
                self._hold.renew()
            self._hold.restart(self._read_rest)

    def _read_rest(self) -> bool:
        """While the writer waits: read what was committed since the last look; whether that is everything."""
        with self._lock:
            self.look()
            if self._log.frame - self._read > _REST_FRAMES:
                return False
            if self._log.frame > self._read:
                self._ready.append(self._take(_REST_FRAMES))
            return True

    def begin_base(self) -> BaseRequest:
        """A copy of the database as it is now, and the time of the point that it is."""
        with self._lock:
            self.look()
            epoch = self._epoch
            copy = self._hold.begin_copy()
            try:
                self.look()
            except BaseException:
                copy.close()
                raise
            self._last_time = max(clock.now_ms(), self._last_time)
            return BaseRequest(self.name, self._last_time, epoch, copy)

    def _most_frames(self) -> int:
        return max(1, SEGMENT_BYTES // (self._log.header.frame_size if self._log.header else 4096))

    def _take(self, most: int) -> SegmentContent:
        """Read the next frames, with the marks of the commits that end in them."""
        with self._lock:
            header = self._log.header
            if header is None:
                raise LogChanged("the log is gone")
            first, last = self._read + 1, min(self._log.frame, self._read + most)
            marks = tuple(mark for mark in self._marks if mark.frame <= last)
            content = SegmentContent(self._epoch, first, header, marks, self._previous, self._log.read(first, last))
            self._marks = [mark for mark in self._marks if mark.frame > last]
            self._read, self._previous = last, content.digest()
            return content

    def _store_ready(self) -> None:
        """Store what was read, as it was read: a segment whose fate is unknown is stored again unchanged."""
        while self._ready:
            content = self._ready[0]
            time = content.marks[-1].time if content.marks else self._started_at
            file = segment_name(self._number, content.epoch, (content.first, content.last), time)
            name = f"{self._archive.path}/{CHAINS}/{self.name}/{file}"
            size = self._archive.store.put(name, self._archive.sealer.pack(name, content.pack()))
            self._ready.pop(0)
            self._number += 1
            if (segment := parse_segment(name, size)) is not None:
                self.merger.add(segment)


def _wait_for_commits() -> None:
    """In a write: every commit whose frames were seen is over.

    A commit is in the log while it is synchronized with the disk, and readers see its rows only after that; without this, the
    contents that its rows name would not be known, and its segment stored without them.
    """
