"""Starts executions whose callers wait for their end."""

import asyncio
from collections.abc import Callable
from functools import partial

from appliance.processes import Execution, RunAtOnce, Waiter
from appliance.processes.engine import FINISHED
from appliance.tenants import Turns

from .services import Services

AT_ONCE_SECONDS = 0.2  # then the execution is recorded while it runs, and its turn is over
AT_ONCE = 4
"""How many executions run at once in the threads of their requests.  More only wait for each other: for the interpreter."""


def make_start_turns() -> Turns:
    """The turns in which callers start their executions."""
    return Turns(AT_ONCE, AT_ONCE_SECONDS)


async def start_and_record(
    services: Services, start: Callable[[Waiter], Execution], on_finished: Callable[[], None]
) -> Execution:
    """The row of an execution that `start` starts in a thread: as it ended, or else as it is recorded.

    It is recorded when it has an effect or waits, at the latest AT_ONCE_SECONDS after its start.  If it has not ended by then,
    `on_finished` is called in some thread when it has; the errors are those of `start`.  Callers hold a turn of
    `services.limits.starts` while it runs.
    """
    in_thread = partial(asyncio.get_running_loop().run_in_executor, services.threads)
    runs: list[RunAtOnce] = []  # its run, if the thread that starts it also runs it
    starting = in_thread(start, Waiter(on_finished, runs.append))
    starting.add_done_callback(_drop_error)
    while not (await asyncio.wait([starting], timeout=AT_ONCE_SECONDS))[0] and not runs:
        pass  # no thread is free yet, or the execution is being recorded without running here
    if starting.done() and ((row := starting.result()).status in FINISHED or not runs):
        return row
    return await in_thread(runs[0].record, on_finished)


def _drop_error(starting: "asyncio.Future[Execution]") -> None:
    """Retrieve the error of a start, which nobody may await any more: whoever records the execution gets the same one."""
    if not starting.cancelled():
        starting.exception()
