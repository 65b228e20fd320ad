"""The threads that wait for foreign systems: kept apart, so that slow systems of one tenant hold up nobody else."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from appliance.core.errors import ConcurrencyLimited
from appliance.core.scope import TenantScope

_FOREIGN_THREADS = 32
_MOST_PER_TENANT = 16

T = TypeVar("T")


class ForeignThreads:
    """A pool of which each tenant has a part."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(_FOREIGN_THREADS, thread_name_prefix="foreign")

    def submit(self, scope: TenantScope, work: Callable[[], T]) -> "Future[T]":
        """Run something that waits for a foreign system in a thread kept for that, so that it holds up nobody else.

        ConcurrencyLimited when the tenant has too much under way already: slow systems of one must not stop the others.
        """
        with self._lock:
            if self._under_way[scope.tenant_id] >= _MOST_PER_TENANT:
                raise ConcurrencyLimited(
                    f"{_MOST_PER_TENANT} calls of this tenant are under way; wait for one, or call with async=true",
                    headers={"Retry-After": "1"},
                )
            self._under_way[scope.tenant_id] += 1
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: self._count_down(scope.tenant_id))
        return future

    def _count_down(self, tenant_id: str) -> None:
        with self._lock:
            self._under_way[tenant_id] -= 1
            if not self._under_way[tenant_id]:
                del self._under_way[tenant_id]

    def stop(self) -> None:
        """Begin nothing any more; what is under way runs to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
