"""Who waits for a place in a sandbox process: bounded, and fair between tenants."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

from appliance.sandbox.pool.process import Slot


class Waiter:
    """Somebody's turn to come; `slot` is there when `ready` is set."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.since = time.monotonic()
        self.ready = threading.Event()
        self.slot: Slot | None = None


class Waiting:
    """Waiters by namespace (the tenant): the namespaces take turns, within one the first comes first.

    A tenant with a hundred waiting steps delays another's by one step per turn, not by a hundred. Not thread-safe:
    the lane's lock guards it.
    """

    def __init__(self, places: int, places_each: int | None = None) -> None:
        self._places, self._places_each = places, (places + 1) // 2 if places_each is None else places_each
        self._count = 0
        self._lines: OrderedDict[str, deque[Waiter]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str) -> Waiter | None:
        """A place at the end of the namespace's line; None when too many wait already, or too many of its own."""
        if self._count >= self._places or len(self._lines.get(namespace, ())) >= self._places_each:
            return None
        waiter = Waiter(namespace)
        self._lines.setdefault(namespace, deque()).append(waiter)
        self._count += 1
        return waiter

    def take(self) -> Waiter | None:
        """Whose turn it is, taken out; their namespace goes to the end."""
        if not self._lines:
            return None
        namespace, line = self._lines.popitem(last=False)
        self._count -= 1
        waiter = line.popleft()
        if line:
            self._lines[namespace] = line
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Somebody lost patience."""
        line = self._lines[waiter.namespace]
        line.remove(waiter)
        self._count -= 1
        if not line:
            del self._lines[waiter.namespace]

    def oldest_seconds(self) -> float:
        """How long whoever came first has been waiting; 0 when nobody waits."""
        first = min((line[0].since for line in self._lines.values()), default=None)
        return 0.0 if first is None else time.monotonic() - first
