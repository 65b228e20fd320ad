"""Whoever waits for an execution hears of its end though another process has brought it about."""

import threading
from collections.abc import Callable

from appliance.core import clock
from appliance.core.database import db
from appliance.processes import Waiter
from appliance.processes.engine import completion
from appliance.processes.engine.end_watch import EndWatch
from appliance.processes.executions.starting import StartRequest
from tests.processes.world import World


def finish_elsewhere(execution_id: str) -> None:
    """As a worker of another process does it: only the row changes, this process is not notified."""
    db.write(lambda: db.execute("UPDATE execution SET status = 'succeeded' WHERE id = ?", (execution_id,)))


def start_later(world: World, when_finished: Callable[[], None]) -> str:
    """An execution with a subscriber for its end, which this process will not start."""
    request = StartRequest({}, run_at=clock.now_ms() + 3_600_000)
    process_id = world.publish([{"id": "a", "rule": {"expression": "= 1"}}])
    return str(world.flow.start_execution(world.scope, process_id, request, waiter=Waiter(when_finished)).id)


def test_callers_are_notified_of_an_end_in_another_process(world: World) -> None:
    over, other = threading.Event(), threading.Event()
    notify_other = other.set
    execution, unfinished = start_later(world, over.set), start_later(world, notify_other)
    finish_elsewhere(execution)
    assert over.wait(10)
    assert not other.is_set()
    assert (
        ("acme", execution) in completion.completion_signal.list_awaited(),
        ("acme", unfinished) in completion.completion_signal.list_awaited(),
    ) == (False, True)
    completion.completion_signal.unsubscribe(unfinished, notify_other)
    world.flow.cancel_execution(world.scope, unfinished)


def test_an_unsubscribed_execution_is_not_watched(idle_world: World) -> None:
    notify = threading.Event().set
    execution = start_later(idle_world, notify)
    assert ("acme", execution) in completion.completion_signal.list_awaited()
    completion.completion_signal.unsubscribe(execution, notify)
    assert ("acme", execution) not in completion.completion_signal.list_awaited()


def test_more_waiting_executions_are_checked_less_often(idle_world: World) -> None:
    """The load of one process stays constant for any number of callers."""
    watch, notify = EndWatch(), threading.Event().set
    waiting = [f"exe_{number}" for number in range(10_000)]
    for execution_id in waiting:
        completion.completion_signal.subscribe("acme", execution_id, notify)
    try:
        watch.check()
        began = clock.monotonic()
        watch.check()
        assert watch._next - began > 3
    finally:
        for execution_id in waiting:
            completion.completion_signal.unsubscribe(execution_id, notify)
