"""The bounded queue for slots of sandbox processes, fair between tenants."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

from appliance.sandbox.pool.process import Slot


class Waiter:
    """A request that waits for a slot; `slot` is set before `ready`, unless the lane stops."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.since = time.monotonic()
        self.ready = threading.Event()
        self.slot: Slot | None = None


class SlotQueue:
    """Waiting requests by namespace (the tenant): round-robin between namespaces, first in first out within one.

    A tenant with a hundred waiting steps therefore delays another's by one step per round, not by a hundred. Not thread-safe;
    guarded by the lane's lock.
    """

    def __init__(self, places: int, places_each: int | None = None) -> None:
        self._places, self._places_each = places, (places + 1) // 2 if places_each is None else places_each
        self._count = 0
        self._queues: OrderedDict[str, deque[Waiter]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str) -> Waiter | None:
        """Join the end of the namespace's line; returns None if too many wait in total or in this namespace."""
        if self._count >= self._places or len(self._queues.get(namespace, ())) >= self._places_each:
            return None
        waiter = Waiter(namespace)
        self._queues.setdefault(namespace, deque()).append(waiter)
        self._count += 1
        return waiter

    def pop(self) -> Waiter | None:
        """Remove and return the next waiter; its namespace moves to the end of the rotation."""
        if not self._queues:
            return None
        namespace, line = self._queues.popitem(last=False)
        self._count -= 1
        waiter = line.popleft()
        if line:
            self._queues[namespace] = line
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter whose time is up."""
        line = self._queues[waiter.namespace]
        line.remove(waiter)
        self._count -= 1
        if not line:
            del self._queues[waiter.namespace]

    def oldest_seconds(self) -> float:
        """How long the oldest waiter has been waiting; 0 if the queue is empty."""
        first = min((line[0].since for line in self._queues.values()), default=None)
        return 0.0 if first is None else time.monotonic() - first
