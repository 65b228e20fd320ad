"""A lane for rarely used, memory-hungry work: its processes start on demand and end when they have been idle."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.sandbox.observer import Reason
from appliance.sandbox.pool.lane import IDLE_HEALTH, Lane
from appliance.sandbox.pool.process import Process, Slot
from appliance.sandbox.pool.protections import Protections


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
        self._restarts: Counter[Reason] = Counter()  # of lanes that have been stopped

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
        with self._lock:
            self._restarts.update(lane.restarts())

    def condemn(self, process: Process, reason: Reason = "lost") -> None:
        lane = self._current()
        if lane is not None:
            lane.condemn(process, reason)

    def process_ids(self) -> list[int]:
        """The ids of the running processes; empty while the lane is stopped."""
        lane = self._current()
        return lane.process_ids() if lane is not None else []

    def protections(self) -> list[Protections]:
        """The protections of each process; empty while the lane is stopped."""
        lane = self._current()
        return lane.protections() if lane is not None else []

    def restarts(self) -> dict[Reason, int]:
        """How many processes were ended and replaced, by reason."""
        with self._lock:
            lane, before = self._lane, Counter(self._restarts)
        return dict(before + Counter(lane.restarts() if lane is not None else {}))

    def health(self) -> dict[str, int]:
        """As `Lane.health`, with zeros while the lane is stopped."""
        lane = self._current()
        health = lane.health() if lane is not None else IDLE_HEALTH
        return health | {"restarts": sum(self.restarts().values())}

    def _current(self) -> Lane | None:
        with self._lock:
            return self._lane

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            watcher, self._lane = self._watcher, None
        if watcher is not None:
            watcher.join()
