"""The thread pool of requests, apart from the others: it needs the database's packages, which set-up installs after them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .database.write_guards import carry
from .pools import API


class RequestPool(ThreadPoolExecutor):
    """A pool whose work belongs to the request that submits it (`write_guards`)."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `Executor.submit`."""
        return super().submit(carry(fn), *args, **kwargs)


def open_request_pool(*, more: int) -> RequestPool:
    """Open the pool of requests, with `more` threads."""
    return RequestPool(API.threads + more, thread_name_prefix=API.name)
