"""Periodic jobs of one process: one thread knows when each is due and hands it to the worker threads of its lane.

A failure is logged, and the job runs again at its next time.  A job never runs twice at the same time.  Jobs that can say when
they next have something to do are left out until then, so that an idle process hardly uses its processor.
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
TICKS = (1.0, 0.5, 0.25)
"""Jobs with at least so long an interval (seconds) are due at its multiples, together, so that an idle process wakes less often."""
MOST_REST_SECONDS = 60.0
"""Whatever a job says, it runs this often, because the wall clock may be set and another process may die."""


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


@dataclass(frozen=True)
class Rest:
    """How a job can tell that its regular calls have nothing to do, so that they are left out.

    `has_work` answers from memory, at once: the scheduler's thread calls it. `next_due` is called after a call of the job, and
    says when the first row becomes due that is in the database now (epoch ms), None for never: until then, calls are left out
    as long as the database does not change. A time in the past leaves out none.
    """

    has_work: Callable[[], bool] | None = None
    next_due: Callable[[], int | None] | None = None


NO_REST = Rest()


class PeriodicJob:
    """Calls `work` every `seconds` after the previous call ended, first after `seconds`, and earlier on request.

    `signal` prevents further calls; `stop` also waits for a call in progress.
    """

    def __init__(
        self, name: str, seconds: float, work: Callable[[], object], lane: Lane = QUICK, rest: Rest = NO_REST
    ) -> None:
        self.name, self.seconds, self.lane, self.rest = name, seconds, lane, rest
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

    def next_call(self) -> float:
        """When the next regular call is due (monotonic seconds)."""
        due = clock.monotonic() + self.seconds
        tick = next((tick for tick in TICKS if tick <= self.seconds), None)
        return due if tick is None else round(due / tick) * tick

    def perform(self) -> bool:
        """One call of the work; a failure is logged, and answered with False."""
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  logged by log_failure
            db.log_failure(log, error, "%s failed; it will run again in %s s", self.name, self.seconds)
            return False
        return True

    def find_pause(self, state: object) -> "_Pause | None":
        """After a call: for how long regular calls are needless while the database stays in this state, which was read before
        the call."""
        if self.rest.next_due is None:
            return None
        try:
            due = self.rest.next_due()
        except Exception as error:  # noqa: BLE001  logged by log_failure
            db.log_failure(log, error, "%s cannot tell when it is due; it will run again in %s s", self.name, self.seconds)
            return None
        now, most = clock.now_ms(), MOST_REST_SECONDS
        if due is not None and due <= now:
            return None
        seconds = most if due is None else min(most, (due - now) / 1000)
        return _Pause(state, clock.monotonic() + seconds, now + int(seconds * 1000))


class Scheduler:
    """Runs jobs between their `start` and `stop`; has a thread only while there are jobs.  Thread-safe.

    `read_state` answers the same value as before only if the database has not changed since; without it, no job rests.
    It is called by the scheduler's thread alone.
    """

    def __init__(self, read_state: Callable[[], object] = object) -> None:
        self._read_state = read_state
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
            self._plan(entry, job.next_call())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
                self._thread.start()
            return entry

    def bring_forward(self, entry: "_Entry", seconds: float) -> None:
        """Have the entry run in `seconds` at the latest; one that waits for a thread already will run soon anyway."""
        due = clock.monotonic() + seconds
        with self._lock:
            entry.is_requested = True
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
                self._plan(entry, min(entry.due, entry.job.next_call()))

    def _plan(self, entry: "_Entry", due: float) -> None:
        entry.due = due
        heapq.heappush(self._due, (due, next(self._order), entry))
        if self._due[0][2] is entry:
            self._changed.notify()

    def _run(self) -> None:
        while entries := self._wait_for_due():
            can_rest = any(entry.job.rest.next_due is not None for entry in entries)
            state = self._observe() if can_rest else None  # Without the lock: the database may be slow.
            with self._lock:
                for entry in entries:
                    self._hand_out(entry, state)

    def _wait_for_due(self) -> list["_Entry"]:
        """Wait until an entry is due, and take all that are; none when there are no more jobs, and the thread ends."""
        with self._lock:
            while self._jobs:
                if entries := self._take_due():
                    return entries
                self._changed.wait(self._due[0][0] - clock.monotonic() if self._due else None)
            self._due.clear()
            self._thread = None
            return []

    def _take_due(self) -> list["_Entry"]:
        """Remove what is due; the first that stays is planned."""
        entries = []
        while self._due:
            due, _, entry = self._due[0]
            is_current = entry.state == "waiting" and entry.due == due and not entry.is_removed  # else planned anew since
            if is_current and due > clock.monotonic():
                break
            heapq.heappop(self._due)
            if is_current:
                entry.state = "due"
                entries.append(entry)
        return entries

    def _observe(self) -> object:
        try:
            return self._read_state()
        except Exception:  # The jobs run into the same failure, and log it.
            log.debug("the state of the database cannot be read", exc_info=True)
            return object()

    def _hand_out(self, entry: "_Entry", state: object) -> None:
        """Hand an entry to its lane, unless its call is needless."""
        entry.state = "waiting"
        if entry.is_removed:
            return
        if not entry.is_needed(state):
            self._plan(entry, entry.job.next_call())
            return
        entry.is_requested, entry.state_before, entry.state_seen = False, entry.state_seen, state
        if not entry.lane.take(entry):
            entry.is_requested = True
            self._plan(entry, clock.monotonic() + RETRY_SECONDS)


@dataclass(frozen=True)
class _Pause:
    """Regular calls are needless while the database is in `state`, before a time on both clocks, of which the wall clock
    (epoch ms) may be set."""

    state: object
    until: float
    until_ms: int

    def holds(self, state: object) -> bool:
        return state == self.state and clock.monotonic() < self.until and clock.now_ms() < self.until_ms


@dataclass(eq=False)
class _Entry:
    """A job in a scheduler.  While it runs, `due` is the earliest time requested since; `over` announces the end of a call.

    `state_seen` is that of the database before the latest call, `state_before` before the one before.
    """

    scheduler: Scheduler
    job: PeriodicJob
    lane: "_Workers"
    over: threading.Condition
    due: float = 0.0
    state: Literal["waiting", "due", "queued", "running"] = "waiting"
    is_removed: bool = False
    is_requested: bool = False
    state_seen: object = None
    state_before: object = None
    pause: _Pause | None = None

    def is_needed(self, state: object) -> bool:
        """Whether the call that is due has anything to do, as far as the job can tell."""
        if self.is_requested:
            return True
        has_work = self.job.rest.has_work
        if has_work is not None and not has_work():
            return False
        return self.pause is None or not self.pause.holds(state)

    def perform(self) -> None:
        """Call the job; only if the database has not changed since the call before is it worth to find out how long it may rest."""
        has_succeeded = self.job.perform()
        is_quiet = has_succeeded and self.state_seen == self.state_before
        self.pause = self.job.find_pause(self.state_seen) if is_quiet else None

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
                entry.perform()
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
