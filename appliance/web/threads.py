"""Runs blocking calls off the event loop, where nothing may wait for the database or a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from appliance.core import logs

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(threads: Executor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, run by one of the threads."""
    return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *args, **kwargs))


def log_as(request_id: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, whose log lines have the request id."""
    with logs.log_context(request_id=request_id):
        return work(*args, **kwargs)
