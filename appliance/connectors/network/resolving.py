"""Name resolution in dedicated threads with a limit per tenant, so that one tenant's silent name server delays only itself."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from appliance.core import clock
from appliance.core.pools import RESOLVER, PoolSize, open_pool

Resolver = Callable[[str, int], list[str]]

PER_OWNER = 4
_owner: ContextVar[str] = ContextVar("resolving_for", default="")


@contextmanager
def resolving_for(owner: str) -> Iterator[None]:
    """Count look-ups made by this thread within the block towards the limit of `owner`, a tenant."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


class ResolverThreads:
    """A pool of threads with a limit per owner; a look-up occupies its thread until the system's resolver returns."""

    def __init__(self, size: PoolSize = RESOLVER, per_owner: int = PER_OWNER) -> None:
        self._threads = open_pool(size)
        self._per_owner = per_owner
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()

    def resolve(self, resolver: Resolver, host: str, port: int, timeout: float | None) -> list[str]:
        """Resolve a name; TimeoutError after `timeout` seconds, including the wait for a thread."""
        owner, began = _owner.get(), clock.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self._running[owner] < self._per_owner, timeout):
                raise TimeoutError
            self._running[owner] += 1
        future = self._threads.submit(resolver, host, port)
        future.add_done_callback(lambda _: self._leave(owner))
        try:
            return future.result(None if timeout is None else max(0.0, began + timeout - clock.monotonic()))
        finally:
            future.cancel()  # a look-up that has not started is no longer needed

    def _leave(self, owner: str) -> None:
        with self._changed:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
            self._changed.notify_all()
