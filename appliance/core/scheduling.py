"""Periodic jobs of one process: one thread knows when each is due and hands it to the worker threads of its lane.

A failure is logged, and the job runs again at its next time.  A job never runs twice at the same time.
"""

import heapq
import itertools
import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from . import clock
from .database import db

log = logging.getLogger(__name__)
IDLE_SECONDS = 10.0
MOST_IDLE = 2  # of a lane without a limit: a new thread costs a connection to the database, an idle one memory
RETRY_SECONDS = 1.0
TICK_SECONDS = 0.25


@dataclass(frozen=True)
class Lane:
    """Jobs that share worker threads: at most `threads`, or with None as many as are due,
    so that none waits for another."""

    name: str
    threads: int | None
    niceness: int = 0


PROMPT = Lane("prompt", None)
"""Leases, timers, schedules and deadlines: a claim is lost or somebody waits when these are late, so nothing may delay them."""
QUICK = Lane("quick", 3)
"""Milliseconds in the database or memory.  More than one thread, so that one slow statement does not stop the others."""
SLOW = Lane("slow", 3)
"""Seconds in the database or on the disk, such as deletions.  Three bound what they take from requests."""
LONG = Lane("long", None)
"""Waits for foreign systems or works for minutes.  These jobs are few, so each has a thread while it works."""
BACKGROUND = Lane("background", None, niceness=10)
"""Uses a processor for minutes, and yields it to everything else."""


class PeriodicJob:
    """Calls `work` every `seconds` after the previous call ended, first after `seconds`, and earlier on request.

    `signal` prevents further calls; `stop` also waits for a call in progress.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], object], lane: Lane = QUICK) -> None:
        self.name, self.seconds, self.lane = name, seconds, lane
        self._work = work
        self._is_stopped = False
        self._is_early = False
        self._entry: _Entry | None = None

    def start(self, scheduler: "Scheduler") -> None:
        """Run the job from now on, at once if that was requested before."""
        self._entry = scheduler.add(self)
        if self._is_early:
            self._entry.run_within(0.0)
        if self._is_stopped:  # before the start, or by another thread in the meantime
            self._entry.remove()

    def hasten(self) -> None:
        """Run the work now; requests that arrive before it starts count as one."""
        self.run_within(0.0)

    def run_within(self, seconds: float) -> None:
        """Run the work in `seconds` at the latest; before `start`, as soon as it is started."""
        self._is_early = True  # Set before the look at the entry, because another thread may be starting the job.
        if self._entry is not None:
            self._entry.run_within(seconds)

    def signal(self) -> None:
        """Prevent further calls, without waiting for one in progress."""
        self._is_stopped = True
        if self._entry is not None:
            self._entry.remove()

    def stop(self, seconds: float | None = None) -> bool:
        """Stop and wait up to `seconds`; returns whether no call is in progress.  Otherwise it ends with the process."""
        self.signal()
        is_over = self._entry is None or self._entry.wait_until_over(seconds)
        if not is_over:
            log.warning("%s is still running and will end with the process", self.name)
        return is_over

    def next_due(self) -> float:
        """When the next call is due if none is requested earlier (monotonic seconds)."""
        due = clock.monotonic() + self.seconds
        if self.lane.threads is None or self.seconds < 1.0:
            return due
        return math.ceil(due / TICK_SECONDS) * TICK_SECONDS  # Due together, so that an idle process wakes less often.

    def perform(self) -> None:
        """One call of the work; a failure is logged."""
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  logged by log_failure
            db.log_failure(log, error, "%s failed; it will run again in %s s", self.name, self.seconds)


class Scheduler:
    """Runs jobs between their `start` and `stop`; has a thread only while there are jobs.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._due: list[tuple[float, int, _Entry]] = []
        self._order = itertools.count()
        self._lanes: dict[Lane, _Workers] = {}
        self._thread: threading.Thread | None = None
        self._jobs = 0

    def add(self, job: PeriodicJob) -> "_Entry":
        """Run the job every `job.seconds`, for the first time after these; `PeriodicJob.start` calls this."""
        with self._lock:
            lane = self._lanes.setdefault(job.lane, _Workers(job.lane, self._lock))
            entry = _Entry(self, job, lane, threading.Condition(self._lock))
            self._jobs += 1
            self._plan(entry, job.next_due())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
                self._thread.start()
            return entry

    def bring_forward(self, entry: "_Entry", seconds: float) -> None:
        """Have the entry run in `seconds` at the latest; one that waits for a thread already will run soon anyway."""
        due = clock.monotonic() + seconds
        with self._lock:
            if entry.state == "waiting" and due < entry.due and not entry.is_removed:
                self._plan(entry, due)
            elif entry.state == "running":
                entry.due = min(entry.due, due)

    def remove(self, entry: "_Entry") -> None:
        """Begin no further call of this entry."""
        with self._lock:
            if entry.is_removed:
                return
            entry.is_removed = True
            self._jobs -= 1
            self._changed.notify()

    def finish(self, entry: "_Entry") -> None:
        """A call has ended: plan the next one."""
        with self._lock:
            entry.state = "waiting"
            entry.over.notify_all()
            if not entry.is_removed:
                self._plan(entry, min(entry.due, entry.job.next_due()))

    def _plan(self, entry: "_Entry", due: float) -> None:
        entry.due = due
        heapq.heappush(self._due, (due, next(self._order), entry))
        if self._due[0][2] is entry:
            self._changed.notify()

    def _run(self) -> None:
        with self._lock:
            while self._jobs:
                self._changed.wait(self._hand_out_due())
            self._due.clear()
            self._thread = None

    def _hand_out_due(self) -> float | None:
        """Hand what is due to its lane; returns the seconds until the next is due, None when no job waits for its time."""
        while self._due:
            due, _, entry = self._due[0]
            left = due - clock.monotonic()
            is_current = entry.state == "waiting" and entry.due == due and not entry.is_removed  # else planned anew since
            if is_current and left > 0:
                return left
            heapq.heappop(self._due)
            if is_current and not entry.lane.take(entry):
                self._plan(entry, clock.monotonic() + RETRY_SECONDS)
        return None


@dataclass(eq=False)
class _Entry:
    """A job in a scheduler.  While it runs, `due` is the earliest time requested since; `over` announces the end of a call."""

    scheduler: Scheduler
    job: PeriodicJob
    lane: "_Workers"
    over: threading.Condition
    due: float = 0.0
    state: Literal["waiting", "queued", "running"] = "waiting"
    is_removed: bool = False

    def run_within(self, seconds: float) -> None:
        self.scheduler.bring_forward(self, seconds)

    def remove(self) -> None:
        self.scheduler.remove(self)

    def wait_until_over(self, seconds: float | None) -> bool:
        with self.over:
            return self.over.wait_for(lambda: self.state != "running", seconds)


@dataclass
class _Workers:
    """The threads of one lane.  Those of a lane with a limit, and `MOST_IDLE` of another, wait `IDLE_SECONDS` for work."""

    lane: Lane
    lock: threading.Lock
    queue: deque[_Entry] = field(default_factory=deque)
    threads: int = 0
    idle: int = 0

    def __post_init__(self) -> None:
        self._arrived = threading.Condition(self.lock)

    def take(self, entry: _Entry) -> bool:
        """Under the lock: run the entry as soon as a thread is free; False if the lane has none and cannot start one."""
        self.queue.append(entry)
        entry.state = "queued"
        if len(self.queue) <= self.idle:
            self._arrived.notify()
        elif self.lane.threads is None or self.threads < self.lane.threads:
            try:
                threading.Thread(target=self._work, name=self.lane.name, daemon=True).start()
                self.threads += 1
            except RuntimeError:  # The machine has no more threads; those of the lane run the entry, if it has any.
                log.exception("no thread could be started for %s", entry.job.name)
                if not self.threads:
                    self.queue.remove(entry)
                    entry.state = "waiting"
        return entry.state == "queued"

    def _work(self) -> None:
        if self.lane.niceness:  # Linux has a priority per thread.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self.lane.niceness)
        while (entry := self._next()) is not None:
            try:
                entry.job.perform()
            finally:
                entry.scheduler.finish(entry)

    def _next(self) -> _Entry | None:
        """Wait for an entry and mark it as running; None when this thread is no longer needed."""
        with self.lock:
            while True:
                if not self.queue and not self._wait():
                    self.threads -= 1
                    return None
                entry = self.queue.popleft()
                if entry.is_removed:
                    entry.state = "waiting"
                    continue
                entry.state, entry.due = "running", math.inf
                return entry

    def _wait(self) -> bool:
        if self.idle >= (self.lane.threads or MOST_IDLE):
            return False
        self.idle += 1
        has_work = self._arrived.wait_for(lambda: bool(self.queue), IDLE_SECONDS)
        self.idle -= 1
        return has_work
