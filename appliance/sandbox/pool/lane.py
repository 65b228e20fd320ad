"""A lane: the sandbox processes of one kind, the queue in front of them, and the thread that keeps them alive."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from appliance.core.sentences import Sentence
from appliance.sandbox.observer import NullObserver, Observer, Reason
from appliance.sandbox.pool import process as processes
from appliance.sandbox.pool.process import Process, Slot, StartFailed
from appliance.sandbox.pool.protections import Protections
from appliance.sandbox.pool.slot_queue import SlotQueue, Waiter

log = logging.getLogger(__name__)

# A process that dies sooner than this after its start is replaced after a short pause; a failed start after a longer one.
HEALTHY_SECONDS, SLOWEST_SECONDS = 2.0, 2.0


IDLE_HEALTH = dict.fromkeys(("processes", "slots", "busy", "restarts", "queued", "oldest_wait_ms", "confined"), 0)
"""The health of a lane without processes."""


class Busy(Exception):
    """No slot became free in time, or too many requests are waiting already."""


@dataclass(frozen=True)
class Bounds:
    """The limits of a lane: `places` requests may wait at once, `places_each` of one tenant.

    Every `watch_seconds` the processes are checked; one that has died, or uses more than `idle_bytes` of private memory plus
    `busy_bytes` for each step in it, is replaced.
    """

    places: int = 256
    idle_bytes: int = 512 << 20
    busy_bytes: int = 600 << 20
    watch_seconds: float = 1.0
    places_each: int | None = None


class Lane:
    """`count` processes with `slots` slots each. Waiting tenants are served in turn. Thread-safe."""

    def __init__(self, name: str, settings: dict[str, Any], count: int, slots: int, bounds: Bounds | None = None) -> None:
        self.name, self._settings, self._count, self._slots = name, settings, count, slots
        self._bounds = bounds or Bounds()
        self.observer: Observer = NullObserver()
        self._lock = threading.Lock()
        self._processes: list[Process] = []
        self._drained: list[Process] = []
        self._waiting = SlotQueue(self._bounds.places, self._bounds.places_each)
        self._ended: queue.SimpleQueue[Process | None] = queue.SimpleQueue()
        self._keeper: threading.Thread | None = None
        self._all_started = threading.Event()
        self._stopping = threading.Event()
        self._start_failure: str | None = None
        self._restarts: Counter[Reason] = Counter()

    def begin(self) -> None:
        """Start all processes without waiting for them; a second call does nothing."""
        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name=f"sandbox-{self.name}", daemon=True)
                self._keeper.start()

    def start(self, timeout: float = processes.START_SECONDS) -> None:
        """Start all processes and wait for them; a second call only waits."""
        self.begin()
        if not self._all_started.wait(timeout):
            raise StartFailed(
                self._start_failure
                or Sentence(
                    "the sandbox processes did not start within %(timeout)s s; start again when this machine is less busy, or "
                    "set sandbox.processes to a lower value",
                    timeout=f"{timeout:g}",
                )
            )
        if self._start_failure is not None:
            raise StartFailed(self._start_failure)

    def stop(self) -> None:
        """End every process and refuse all waiting requests, whose threads would otherwise keep the interpreter alive."""
        self._stopping.set()
        self._ended.put(None)
        with self._lock:
            keeper = self._keeper
            while (waiter := self._waiting.pop()) is not None:
                waiter.ready.set()
        if keeper is not None:
            keeper.join()

    @contextmanager
    def slot(self, timeout: float, namespace: str = "") -> Iterator[Slot]:
        """Hold a slot exclusively; raises Busy if none becomes free within `timeout` seconds."""
        slot = self._acquire(timeout, namespace)
        try:
            yield slot
        finally:
            self._release(slot)

    def _acquire(self, timeout: float, namespace: str) -> Slot:
        if not self._all_started.is_set():
            self.start()
        began = time.monotonic()
        claimed = self._claim(namespace)
        slot = claimed if isinstance(claimed, Slot) else self._await(claimed, timeout)
        self.observer.waited(self.name, time.monotonic() - began)
        return slot

    def _claim(self, namespace: str) -> Slot | Waiter:
        """Take a slot of the process with the most free slots, or join the queue."""
        with self._lock:
            if self._stopping.is_set():
                raise Busy("the sandbox has been stopped")
            process = max(self._processes, key=lambda each: len(each.free), default=None)
            if process is not None and process.free:
                return process.free.pop()
            waiter = self._waiting.add(namespace)
            if waiter is None:
                raise Busy(f"the queue of the sandbox is full ({self._bounds.places} waiting)")
            return waiter

    def _await(self, waiter: Waiter, timeout: float) -> Slot:
        waiter.ready.wait(timeout)
        with self._lock:
            if waiter.slot is None:
                if self._stopping.is_set():
                    raise Busy("the sandbox has been stopped")
                self._waiting.remove(waiter)
                raise Busy(f"no sandbox became free within {timeout:g} s")
            return waiter.slot

    def _release(self, slot: Slot) -> None:
        process = slot.process
        with self._lock:
            if process.condemned:
                return
            if process not in self._drained:
                self._hand_out(slot)
                return
            process.free.append(slot)
            is_empty = len(process.free) == len(process.slots)
        if is_empty:
            self.condemn(process, "memory")

    def _hand_out(self, slot: Slot) -> None:
        waiter = self._waiting.pop()
        if waiter is None:
            slot.process.free.append(slot)
        else:
            waiter.slot = slot
            waiter.ready.set()

    def condemn(self, process: Process, reason: Reason = "lost") -> None:
        """End a process that is overdue or dead; the other steps in it fail, and a new one starts in the background."""
        with self._lock:
            if process.condemned:
                return
            process.condemned = True
            self._restarts[reason] += 1
            if process in self._processes:
                self._processes.remove(process)
        process.child.kill()
        self._ended.put(process)
        self.observer.replaced(self.name, reason)

    def process_ids(self) -> list[int]:
        with self._lock:
            return [each.child.pid for each in self._processes]

    def protections(self) -> list[Protections]:
        """The protections of each process."""
        with self._lock:
            return [each.protections for each in self._processes]

    def restarts(self) -> dict[Reason, int]:
        """How many processes were ended, by reason."""
        with self._lock:
            return dict(self._restarts)

    def health(self) -> dict[str, int]:
        with self._lock:
            total = sum(len(each.slots) for each in self._processes)
            free = sum(len(each.free) for each in self._processes)
            return {
                "processes": len(self._processes),
                "slots": total,
                "busy": total - free,
                "restarts": self._restarts.total(),
                "queued": len(self._waiting),
                "oldest_wait_ms": round(self._waiting.oldest_seconds() * 1000),
                "confined": sum(each.protections.seccomp for each in self._processes),
            }

    # ---- the keeper: the only thread that starts processes, because they die together with the thread that started them

    def _keep(self) -> None:
        launched = [processes.launch(self._settings, self._slots) for _ in range(self._count)]  # side by side
        missing = sum(not self._admit(each) for each in launched)
        self._all_started.set()
        while not self._stopping.is_set():
            if missing:
                missing -= self._add_in_time(SLOWEST_SECONDS)
                continue
            try:
                ended = self._ended.get(timeout=self._bounds.watch_seconds)
            except queue.Empty:
                missing += self._inspect()
                continue
            if ended is not None:
                missing += self._replace(ended)
        with self._lock:
            remaining, self._processes, self._drained = self._processes + self._drained, [], []
        for each in remaining:
            each.condemned = True
            each.end()
        while not self._ended.empty():  # condemned during the shutdown
            if (late := self._ended.get()) is not None:
                late.end()

    def _replace(self, ended: Process) -> int:
        """Clean up after a dead process and start a new one; returns how many are missing afterwards."""
        ended.end()
        with self._lock:
            if ended in self._drained:
                self._drained.remove(ended)
                return 0  # its successor is running already
        return int(not self._add_in_time(0.0 if time.monotonic() - ended.started > HEALTHY_SECONDS else 0.1))

    def _inspect(self) -> int:
        """Replace dead processes, and drain those that use too much memory, which end with their last step.

        Returns how many processes are missing afterwards.
        """
        with self._lock:
            processes = list(self._processes)
        for each in processes:
            if each.child.poll() is not None:
                self.condemn(each)
        drained = [each for each in processes if self._is_grown(each) and self._drain(each)]
        return sum(not self._add() for _ in drained)

    def _is_grown(self, process: Process) -> bool:
        bounds, busy = self._bounds, len(process.slots) - len(process.free)
        return process.own_bytes() > bounds.idle_bytes + busy * bounds.busy_bytes

    def _drain(self, process: Process) -> bool:
        with self._lock:
            if process.condemned:
                return False
            self._processes.remove(process)
            self._drained.append(process)
            is_empty = len(process.free) == len(process.slots)
        log.info("sandbox process %d uses too much memory and is being replaced", process.child.pid)
        if is_empty:
            self.condemn(process, "memory")
        return True

    def _add_in_time(self, pause: float) -> bool:
        return not self._stopping.wait(pause) and self._add()

    def _add(self) -> bool:
        return self._admit(processes.launch(self._settings, self._slots))

    def _admit(self, process: Process) -> bool:
        """Wait until a launched process is ready, and give its slots to those who wait; False if it did not start."""
        try:
            processes.await_ready(process)
        except StartFailed as failed:
            self._start_failure = str(failed)
            log.error("%s", failed)  # noqa: TRY400  a traceback would add nothing
            return False
        self._start_failure = None
        with self._lock:
            self._processes.append(process)
            for slot in [process.free.pop() for _ in process.slots]:
                self._hand_out(slot)
        return True
