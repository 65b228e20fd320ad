"""Merges the segments of a chain into fewer, larger files, so that their number stays bounded however often something is shipped.

`FANOUT` adjacent files of a level become one of the next, and a file of `FULL_BYTES` is not merged again, so that each byte is
stored a few times.  Every moment can be restored at any time: the merged file is stored, read back and compared before what it has
is deleted, and until then takes its place; one that cannot be read is deleted itself.  A killed process leaves files that the next
merge of the chain deletes, after it has read the merged one.
"""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby

from appliance.backups.problems import BackupInvalid, ShouldStop, refuse_stopping
from appliance.core import clock
from appliance.core.errors import NotFound

from .archives import CHAINS, Archive, Chain, Segment, list_chains, merged_name, parse_segment
from .segments import damaged_segment, pack_segments, read_segments

log = logging.getLogger(__name__)
FANOUT = 32
MERGED_BYTES = 32 << 20
"""The most that is merged into one file, by the sizes in the store."""
FULL_BYTES = MERGED_BYTES // 2
RETRY_SECONDS = 60.0
NICENESS = 10
"""Of the threads that look after an archive, which yield the processor to everything else."""


def choose(segments: Sequence[Segment], *, is_finished: bool) -> Sequence[Segment]:
    """The adjacent segments that are merged next; none if there are few enough.

    Of a finished chain, and before a full file, everything is merged that fits.  So there are at most twice as many files as
    FULL_BYTES fit into what was shipped, and FANOUT of each level.
    """
    runs = [tuple(run) for is_full, run in groupby(segments, key=_is_full) if not is_full]
    for run in runs:
        if len(run) > 1 and (is_finished or run[-1] != segments[-1]):
            return _fitting(run)
    for level, same in groupby(runs[-1] if runs else (), key=lambda each: each.level):
        files = tuple(same)
        if len(files) >= FANOUT and level < 9:
            return _fitting(files[:FANOUT])
    return ()


def _is_full(segment: Segment) -> bool:
    return segment.size >= FULL_BYTES


def _fitting(run: Sequence[Segment]) -> Sequence[Segment]:
    """As many from the first on as fit into one file: two at least, as neither of them is full."""
    count, size = 0, 0
    for each in run:
        if count >= 2 and size + each.size > MERGED_BYTES:
            break
        count, size = count + 1, size + each.size
    return run[:count]


def merge(archive: Archive, chain: str, segments: Sequence[Segment], should_stop: ShouldStop) -> Segment:
    """Store a file with what these adjacent segments have, and return it; delete them afterwards.  BackupInvalid."""
    name = f"{archive.path}/{CHAINS}/{chain}/{merged_name(segments)}"
    digests = list[str]()

    def items() -> Iterator[bytes]:
        for segment in segments:
            for _, content in read_segments(archive, segment):
                refuse_stopping(should_stop)
                digests.append(content.digest())
                yield b"".join(content.pack())

    size = archive.store.put(name, archive.sealer.pack(name, pack_segments(items())))
    merged, is_same = parse_segment(name, size), False
    try:
        is_same = merged is not None and [content.digest() for _, content in read_segments(archive, merged)] == digests
    finally:
        if not is_same:  # else it would take the place of what can be read
            archive.store.delete(name)
    if merged is None or not is_same:
        raise damaged_segment(segments[0])
    return merged


def merge_finished(archive: Archive, current: str, should_stop: ShouldStop) -> int:
    """Merge the chains of the archive but the current one, and delete what was merged before; returns how many files went."""
    count = 0
    for chain in list_chains(archive):
        if chain.name != current:
            count += _merge_chain(archive, chain, should_stop)
    return count


def _delete_superseded(archive: Archive, chain: Chain) -> bool:
    """Delete what merged files have; of one that cannot be read delete the file itself, if all that it had is still there.

    Whether all merged files of the chain can be read.
    """
    superseded = [each for each in (parse_segment(name, 0) for name in chain.superseded) if each is not None]
    for merged in chain.segments:
        numbers = range(merged.number, merged.last_number + 1)
        parts = [each for each in superseded if each.number in numbers]
        try:
            for _ in read_segments(archive, merged) if parts else ():
                pass
        except BackupInvalid as error:
            log.error("A merged file of points cannot be read, so what it was made of stays: %s", error)  # noqa: TRY400  as below
            if set(numbers) == {number for each in parts for number in range(each.number, each.last_number + 1)}:
                archive.store.delete(merged.name)
            return False
        for each in parts:
            archive.store.delete(each.name)
    return True


def _merge_chain(archive: Archive, chain: Chain, should_stop: ShouldStop) -> int:
    if not _delete_superseded(archive, chain):
        return 0
    segments, count = list(chain.segments), len(chain.superseded)
    while chosen := choose(segments, is_finished=True):
        try:
            merged = merge(archive, chain.name, chosen, should_stop)
        except BackupInvalid as error:
            log.error("A finished chain of points is not merged: %s", error)  # noqa: TRY400  its sentence says everything
            return count
        for each in chosen:
            archive.store.delete(each.name)
        at = segments.index(chosen[0])
        segments[at : at + len(chosen)] = [merged]
        count += len(chosen) - 1
    return count


class ChainMerger:
    """Merges the chain that is shipped, and once the finished ones, in a thread of its own; `lock` keeps a purge out meanwhile."""

    def __init__(self, archive: Archive, chain: str, should_stop: ShouldStop) -> None:
        self._archive, self._chain, self._should_stop = archive, chain, should_stop
        self._segments: list[Segment] = []
        self._merged: list[str] = []
        self._changes = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_new, self._is_begun, self._is_ending, self._retry_at = True, False, False, 0.0
        self.lock = threading.Lock()

    def add(self, segment: Segment) -> None:
        """A segment was stored."""
        with self._changes:
            self._segments.append(segment)
            self._has_new = True

    def merge_due(self) -> None:
        """Begin to merge, if there is something to merge and no merge goes on."""
        if clock.monotonic() < self._retry_at or (self._thread is not None and self._thread.is_alive()):
            return
        if self._has_new and (not self._is_begun or self._merged or self._choose()):
            self._thread = threading.Thread(target=self._run, name="points-merge", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End a merge that goes on; nothing is lost by that."""
        self._is_ending = True
        if self._thread is not None:
            self._thread.join()

    def _choose(self) -> Sequence[Segment]:
        with self._changes:
            chosen = choose(self._segments, is_finished=False)
            self._has_new = bool(chosen)
            return chosen

    def _is_over(self) -> bool:
        return self._is_ending or self._should_stop()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)  # Linux has a priority per thread
        try:
            with self.lock:
                if not self._is_begun:
                    merge_finished(self._archive, self._chain, self._is_over)
                    self._is_begun = True
                self._delete_merged()
                while not self._is_over() and self._merge():
                    self._delete_merged()
        except NotFound:  # purged
            self._list_again()
        except Exception as error:  # noqa: BLE001  logged, and tried again
            if not self._is_over():
                self._retry_at = clock.monotonic() + RETRY_SECONDS
                log.warning("The segments of the points are not merged; it will be tried again in %s s: %s", RETRY_SECONDS, error)

    def _merge(self) -> bool:
        """Whether something was merged."""
        chosen = self._choose()
        if not chosen:
            return False
        merged = merge(self._archive, self._chain, chosen, self._is_over)
        with self._changes:
            at = self._segments.index(chosen[0])
            self._segments[at : at + len(chosen)] = [merged]
            self._merged += [each.name for each in chosen]
        return True

    def _delete_merged(self) -> None:
        """Delete what was merged, again if it failed before."""
        while self._merged:
            self._archive.store.delete(self._merged[0])
            del self._merged[0]

    def _list_again(self) -> None:
        """Only what is in the store, as what no moment needs was deleted."""
        names = {each.name for chain in list_chains(self._archive) if chain.name == self._chain for each in chain.segments}
        with self._changes:
            self._segments = [each for each in self._segments if each.name in names]
            self._has_new = True
