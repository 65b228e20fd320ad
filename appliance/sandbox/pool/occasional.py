"""A lane for rarely used, memory-hungry work: its processes start on demand and end when they have been idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.sandbox.observer import Reason
from appliance.sandbox.pool.lane import Lane
from appliance.sandbox.pool.process import Process, Slot


class OccasionalLane:
    """Creates its lane with `make` when a slot is requested, and stops it after `idle_seconds` without use. Thread-safe."""

    def __init__(self, make: Callable[[], Lane], idle_seconds: float) -> None:
        self._make, self._idle_seconds = make, idle_seconds
        self._lock = threading.Lock()
        self._lane: Lane | None = None
        self._users = 0
        self._used = 0.0
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    @contextmanager
    def slot(self, timeout: float, namespace: str = "") -> Iterator[Slot]:
        lane = self._enter()
        try:
            with lane.slot(timeout, namespace) as slot:
                yield slot
        finally:
            with self._lock:
                self._users -= 1
                self._used = time.monotonic()

    def _enter(self) -> Lane:
        with self._lock:
            if self._lane is None:
                self._lane = self._make()
                self._watcher = threading.Thread(target=self._watch, args=(self._lane,), name="sandbox-idle", daemon=True)
                self._watcher.start()
            self._users += 1
            return self._lane

    def _watch(self, lane: Lane) -> None:
        """Stop the lane once it has been idle long enough, or when the sandbox stops."""
        rest = self._idle_seconds
        while not self._stopping.wait(rest):
            with self._lock:
                rest = self._used + self._idle_seconds - time.monotonic() if not self._users else self._idle_seconds
                if rest <= 0:
                    self._lane = None
                    break
        lane.stop()

    def condemn(self, process: Process, reason: Reason = "lost") -> None:
        with self._lock:
            lane = self._lane
        if lane is not None:
            lane.condemn(process, reason)

    def process_ids(self) -> list[int]:
        """The ids of the running processes; empty while the lane is stopped."""
        with self._lock:
            lane = self._lane
        return lane.process_ids() if lane is not None else []

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            watcher, self._lane = self._watcher, None
        if watcher is not None:
            watcher.join()
