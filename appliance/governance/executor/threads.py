"""Thread pools for slow work (foreign systems, replays) with a limit per tenant, so that one tenant cannot block others."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from appliance.connectors.network import resolving_for
from appliance.core.database.write_guards import carry
from appliance.core.errors import ConcurrencyLimited
from appliance.core.pools import FOREIGN, REPLAY, PoolSize, open_pool
from appliance.core.scope import TenantScope

T = TypeVar("T")


@dataclass(frozen=True)
class PoolLimits:
    """A pool and its maximum per tenant; `limit_message` is the error message for a tenant at its maximum."""

    size: PoolSize
    per_tenant: int
    limit_message: str
    retry_seconds: int = 1


FOREIGN_CALLS = PoolLimits(FOREIGN, 16, "16 calls of this tenant are in progress; wait for one to finish, or call with async=true")
REPLAYS = PoolLimits(REPLAY, 1, "a policy replay is in progress in this tenant; wait until it finishes, then try again", 5)


def _work_for(tenant_id: str, work: Callable[[], T]) -> T:
    with resolving_for(tenant_id):
        return work()


class TenantThreads:
    """A thread pool with a maximum of concurrent work per tenant."""

    def __init__(self, share: PoolLimits = FOREIGN_CALLS) -> None:
        self._share = share
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._threads = open_pool(share.size)

    def submit(self, scope: TenantScope, work: Callable[[], T]) -> "Future[T]":
        """Run slow work in a thread of the pool.

        ConcurrencyLimited if the tenant has reached its maximum: slow systems of one tenant must not block the others.
        """
        with self._lock:
            if self._running[scope.tenant_id] >= self._share.per_tenant:
                raise ConcurrencyLimited(self._share.limit_message, headers={"Retry-After": str(self._share.retry_seconds)})
            self._running[scope.tenant_id] += 1
        future = self._threads.submit(carry(_work_for), scope.tenant_id, work)
        future.add_done_callback(lambda _: self._release(scope.tenant_id))
        return future

    def _release(self, tenant_id: str) -> None:
        with self._lock:
            self._running[tenant_id] -= 1
            if not self._running[tenant_id]:
                del self._running[tenant_id]

    def stop(self, *, wait: bool = False) -> None:
        """Start no more work; work in progress runs to its end."""
        self._threads.shutdown(wait=wait, cancel_futures=True)
