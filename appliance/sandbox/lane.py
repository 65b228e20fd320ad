"""A lane: the sandbox processes of one kind, the queue before them, and the thread that keeps them alive."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from appliance.sandbox import process as processes
from appliance.sandbox.process import Process, Slot, StartFailed

log = logging.getLogger(__name__)

# A process that ends sooner than this after its start waits a little for its next; one that cannot start waits longer.
HEALTHY_SECONDS, SLOWEST_SECONDS = 2.0, 2.0


class Busy(Exception):
    """No slot became free in time."""


class _Waiter:
    def __init__(self) -> None:
        self.ready = threading.Event()
        self.slot: Slot | None = None


class Lane:
    """`count` processes with `slots` places each; thread-safe. Whoever waits is served in the order of arrival."""

    def __init__(self, name: str, settings: dict[str, Any], count: int, slots: int) -> None:
        self.name, self._settings, self._count, self._slots = name, settings, count, slots
        self._lock = threading.Lock()
        self._processes: list[Process] = []
        self._waiters: deque[_Waiter] = deque()
        self._ended: queue.SimpleQueue[Process | None] = queue.SimpleQueue()
        self._keeper: threading.Thread | None = None
        self._all_started = threading.Event()
        self._stopping = threading.Event()
        self._start_failure: str | None = None
        self._restarts = 0

    def start(self, timeout: float = processes.START_SECONDS) -> None:
        """Start all processes and wait for them; a second call only waits."""
        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name=f"sandbox-{self.name}", daemon=True)
                self._keeper.start()
        if not self._all_started.wait(timeout):
            raise StartFailed(self._start_failure or "the sandbox processes did not start in time")
        if self._start_failure is not None:
            raise StartFailed(self._start_failure)

    def stop(self) -> None:
        self._stopping.set()
        self._ended.put(None)
        with self._lock:
            keeper = self._keeper
        if keeper is not None:
            keeper.join()

    @contextmanager
    def slot(self, timeout: float) -> Iterator[Slot]:
        slot = self._acquire(timeout)
        try:
            yield slot
        finally:
            self._release(slot)

    def _acquire(self, timeout: float) -> Slot:
        if not self._all_started.is_set():
            self.start()
        claimed = self._claim()
        return claimed if isinstance(claimed, Slot) else self._await(claimed, timeout)

    def _claim(self) -> Slot | _Waiter:
        """A place in the process that has most of them, or a place in the queue."""
        with self._lock:
            process = max(self._processes, key=lambda each: len(each.free), default=None)
            if process is not None and process.free:
                return process.free.pop()
            waiter = _Waiter()
            self._waiters.append(waiter)
            return waiter

    def _await(self, waiter: _Waiter, timeout: float) -> Slot:
        waiter.ready.wait(timeout)
        with self._lock:
            if waiter.slot is None:
                self._waiters.remove(waiter)
                raise Busy(f"no sandbox became free within {timeout:g} s")
            return waiter.slot

    def _release(self, slot: Slot) -> None:
        with self._lock:
            if not slot.process.condemned:
                self._hand_out(slot)

    def _hand_out(self, slot: Slot) -> None:
        if self._waiters:
            waiter = self._waiters.popleft()
            waiter.slot = slot
            waiter.ready.set()
        else:
            slot.process.free.append(slot)

    def condemn(self, process: Process) -> None:
        """End a process that is overdue or gone; the others inside fail, a new one is started in the background."""
        with self._lock:
            if process.condemned:
                return
            process.condemned = True
            if process in self._processes:
                self._processes.remove(process)
        process.child.kill()
        self._ended.put(process)

    def process_ids(self) -> list[int]:
        with self._lock:
            return [each.child.pid for each in self._processes]

    def health(self) -> dict[str, int]:
        with self._lock:
            total = sum(len(each.slots) for each in self._processes)
            free = sum(len(each.free) for each in self._processes)
            return {
                "processes": len(self._processes),
                "slots": total,
                "busy": total - free,
                "restarts": self._restarts,
                "queued": len(self._waiters),
                "confined": sum(each.confined for each in self._processes),
            }

    # ---- the keeper: the only thread that starts processes, for they end with it

    def _keep(self) -> None:
        missing = sum(not self._add() for _ in range(self._count))
        self._all_started.set()
        while not self._stopping.is_set():
            if missing:
                missing -= self._add_in_time(SLOWEST_SECONDS)
                continue
            ended = self._ended.get()
            if ended is not None:
                ended.end()
                self._restarts += 1
                missing += not self._add_in_time(0.0 if time.monotonic() - ended.started > HEALTHY_SECONDS else 0.1)
        with self._lock:
            remaining, self._processes = self._processes, []
        for each in remaining:
            each.condemned = True
            each.end()
        while not self._ended.empty():  # condemned while the stop was on its way
            if (late := self._ended.get()) is not None:
                late.end()

    def _add_in_time(self, pause: float) -> bool:
        return not self._stopping.wait(pause) and self._add()

    def _add(self) -> bool:
        try:
            process = processes.start(self._settings, self._slots)
        except StartFailed as failed:
            self._start_failure = str(failed)
            log.error("%s", failed)  # noqa: TRY400  the message says all there is
            return False
        self._start_failure = None
        with self._lock:
            self._processes.append(process)
            for slot in [process.free.pop() for _ in process.slots]:
                self._hand_out(slot)
        return True
