"""Waits for the result of a tool: each look at the database uses a thread briefly, and waiting occupies none."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from appliance.agents.tools import PendingResult
from appliance.core import clock
from appliance.web import in_thread, log_as

POLL_SECONDS = 0.3


async def wait_for(threads: Executor, request_id: str, waiting: PendingResult, pause: Callable[[float], float]) -> dict[str, Any]:
    """Return the pending result once it is ready or its time is up; `pause` lengthens the polling interval when many wait."""
    deadline = clock.monotonic() + waiting.seconds
    while True:
        last = clock.monotonic() >= deadline
        result = await in_thread(threads, log_as, request_id, waiting.look, last)
        if result is not None:
            return result
        left = max(0.0, deadline - clock.monotonic())
        if waiting.ready is None or waiting.ready.done():
            await asyncio.sleep(min(pause(POLL_SECONDS), left))
        else:
            await _until_done(waiting.ready, left)


async def _until_done(future: "Future[Any]", seconds: float) -> None:
    """Wait until the future is done or the time is up, ignoring its result."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def announce(_: object) -> None:
        with suppress(RuntimeError):  # the loop may have been closed in the meantime
            loop.call_soon_threadsafe(event.set)

    future.add_done_callback(announce)
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
