"""Exact wake-ups for due executions of this process; after a crash the sweeper finds the lost ones."""

import heapq
import threading
from collections.abc import Callable

from appliance.core import clock
from appliance.core.scheduling import PROMPT, PeriodicJob, Scheduler

CHECK_SECONDS = 60.0  # the wall clock may be set, so due times are compared with it at least this often


class Timers:
    """Calls `wake(tenant_id, execution_id)` at the due times."""

    def __init__(self, wake: Callable[[str, str], None]) -> None:
        self._wake = wake
        self._heap: list[tuple[int, str, str]] = []
        self._lock = threading.Lock()
        self._job = PeriodicJob("timers", CHECK_SECONDS, self._wake_due, PROMPT)

    def start(self, scheduler: Scheduler) -> None:
        self._job.start(scheduler)

    def stop(self) -> None:
        self._job.stop()

    def at(self, due_ms: int, tenant_id: str, execution_id: str) -> None:
        """Wakes this execution at `due_ms` (epoch ms)."""
        with self._lock:
            heapq.heappush(self._heap, (due_ms, tenant_id, execution_id))
        self._job.run_within((due_ms - clock.now_ms()) / 1000)

    def _wake_due(self) -> None:
        while (due := self._take_due()) is not None:
            self._wake(*due)

    def _take_due(self) -> tuple[str, str] | None:
        """Removes the next execution that is due; without one, plans the call for when there is."""
        with self._lock:
            left = (self._heap[0][0] - clock.now_ms()) / 1000 if self._heap else CHECK_SECONDS
            if left <= 0:
                return heapq.heappop(self._heap)[1:]
        self._job.run_within(left)
        return None
