"""A thread pool shared fairly among tenants, so that one tenant's wide process does not delay the steps of another."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from appliance.core.pools import PoolSize, open_pool

from .fair_share import FairShare

T = TypeVar("T")


class FairThreadPool:
    """Runs submitted work in the threads of a pool: in order within a tenant, and first for the tenant with the least running."""

    def __init__(self, size: PoolSize, times: int = 1) -> None:
        self._threads = open_pool(size, times)
        self._places = FairShare(size.threads * times)
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._lock = threading.Lock()

    def submit(self, tenant_id: str, work: Callable[[], T]) -> "Future[T]":
        """Queues `work`; raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(tenant_id, deque()).append((future, work))
            self._dispatch()
        return future

    def shutdown(self) -> None:
        """Refuses new work and cancels waiting work; running work finishes."""
        with self._lock:
            for waiting in self._waiting.values():
                for future, _ in waiting:
                    future.cancel()
            self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _dispatch(self) -> None:
        while (tenant_id := self._places.acquire(self._waiting)) is not None:
            waiting = self._waiting[tenant_id]
            future, work = waiting.popleft()
            if not waiting:
                del self._waiting[tenant_id]
            try:
                self._threads.submit(self._perform, tenant_id, future, work)
            except RuntimeError:
                self._places.release(tenant_id)
                raise

    def _perform(self, tenant_id: str, future: "Future[Any]", work: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                _settle(future, work)
        finally:
            with self._lock:
                self._places.release(tenant_id)
                if self._waiting:
                    self._dispatch()


def _settle(future: "Future[Any]", work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  raised again by the future's result()
        future.set_exception(error)
    else:
        future.set_result(result)
