"""Exact wake-ups for due executions of this process; after a crash the sweeper finds the lost ones."""

import heapq
import threading
from collections.abc import Callable

from appliance.core import clock


class Timers:
    """One thread that calls `wake(tenant_id, execution_id)` at the due times."""

    def __init__(self, wake: Callable[[str, str], None]) -> None:
        self._wake = wake
        self._heap: list[tuple[int, str, str]] = []
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="timers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():  # not when the start failed before
            self._thread.join()

    def at(self, due_ms: int, tenant_id: str, execution_id: str) -> None:
        """Wakes this execution at `due_ms` (epoch ms)."""
        with self._changed:
            heapq.heappush(self._heap, (due_ms, tenant_id, execution_id))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                left = (self._heap[0][0] - clock.now_ms()) / 1000 if self._heap else None
                if left is None or left > 0:
                    self._changed.wait(None if left is None else min(left, 60.0))
                    continue
                _, tenant_id, execution_id = heapq.heappop(self._heap)
            self._wake(tenant_id, execution_id)
