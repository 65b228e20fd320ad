"""Calls that take their time: a deadline for each, and a cancel that does not wait."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database.changes import read_state
from appliance.core.pages import PageRequest
from appliance.core.pools import PoolSize
from appliance.core.scheduling import Scheduler
from appliance.integrations import history
from appliance.processes.executions import service as executions
from appliance.processes.host.deadlines import Deadlines
from appliance.processes.scheduling.fair_threads import FairThreadPool
from appliance.sandbox import Pool
from tests.processes.world import Bell, World, code, make_world, wait_until

HOLD = {"use": "bell", "action": "hold"}
CATCH = """
try { return await api.integrations.execute('bell', 'hold', {}) }
catch (e) { return {name: e.name, code: e.code, retryable: e.retryable, failure_class: e.failure_class, message: e.message} }"""


@pytest.fixture(scope="module")
def hasty(folder: Path, sandbox: Pool) -> Iterator[World]:
    """A call of step code may take one second."""
    created = make_world(folder / "hasty", sandbox, limits__step_call_seconds=1)
    created.flow.start(Scheduler(read_state))
    yield created
    created.flow.stop(5)
    created.presence.close()


@pytest.fixture
def world(hasty: World) -> World:
    hasty.wipe()
    Bell.forget()
    return hasty


def test_a_call_past_its_deadline_is_answered_and_its_late_answer_is_dropped(world: World) -> None:
    began = clock.monotonic()
    done = world.run([code("a", CATCH), code("b", "return 'went on'")])
    assert clock.monotonic() - began < 15, "it would have been held for twenty seconds"
    assert done.status == "succeeded"
    result = world.steps(done)["a"].output
    assert {name: result[name] for name in ("code", "retryable", "failure_class")} == {
        "code": "call_timed_out",
        "retryable": True,
        "failure_class": "timeout",
    }
    assert result["message"] == (
        "the call took longer than 1 s and may still be carried out; ask for less, or raise limits.step_call_seconds"
    )
    entry = executions.list_journal(world.scope, done, PageRequest(50)).items[0]
    assert (entry.ok, entry.answer["code"]) == (False, "call_timed_out")
    Bell.go_on.set()
    wait_until(lambda: [call.status for call in calls_of(world, done.id)] == ["succeeded"])


def calls_of(world: World, execution_id: str) -> list[Any]:
    """The record of calls to foreign systems, which has what became of each."""
    expected = history.CallFilter(execution_id=execution_id)
    return list(history.list_calls(world.scope, "bell", expected, PageRequest(50)).items)


def test_an_uncaught_deadline_fails_the_step_as_a_timeout(world: World) -> None:
    done = world.run([code("a", "return await api.integrations.execute('bell', 'hold', {})")])
    Bell.go_on.set()
    assert (done.error["code"], done.error["failure_class"], done.error["retryable"]) == ("call_timed_out", "timeout", True)


def test_a_step_tried_again_after_a_deadline_does_not_do_it_twice(world: World) -> None:
    retry = {"max_attempts": 2, "backoff": "constant", "initial": "1ms", "classes": ["timeout"]}
    body = "return await api.integrations.execute('bell', 'hold', {})"
    execution = world.start(world.publish([code("a", body, retry=retry)]))
    wait_until(lambda: "a" in world.steps(execution) and world.steps(execution)["a"].attempt == 2)
    Bell.go_on.set()
    done = world.finish(execution)
    assert (done.status, world.steps(done)["a"].output) == ("succeeded", {"rung": {}})
    assert len(Bell.rung) == 1


def test_a_declared_step_has_its_own_time_and_not_the_deadline_of_calls(world: World) -> None:
    execution = world.start(world.publish([{"id": "ring", "integration": HOLD}]))
    assert Bell.arrived.acquire(timeout=10)
    threading.Timer(1.3, Bell.go_on.set).start()
    assert world.finish(execution).status == "succeeded"


def test_a_cancel_does_not_wait_for_a_declared_call(world: World) -> None:
    execution = world.start(world.publish([{"id": "ring", "integration": HOLD}, {"id": "next", "integration": HOLD}]))
    assert Bell.arrived.acquire(timeout=10)
    world.flow.cancel_execution(world.scope, execution)
    done = world.finish(execution, 15)  # the call is held until it is let go
    assert (done.status, world.steps(done)["ring"].status) == ("cancelled", "cancelled")
    Bell.go_on.set()
    wait_until(lambda: [call.status for call in calls_of(world, execution)] == ["succeeded"])
    assert len(Bell.rung) == 1


def test_answers_and_faults_pass_through_and_only_the_late_are_replaced() -> None:
    go_on = threading.Event()
    threads = FairThreadPool(PoolSize("test", 4))
    deadlines = Deadlines(threads.submit, 0.2)
    deadlines.start(Scheduler(read_state))
    slow: Future[Any] = deadlines.submit("acme", lambda: go_on.wait(10) and "too late")
    assert deadlines.submit("acme", lambda: "in time").result(5) == "in time"
    with pytest.raises(KeyError):
        deadlines.submit("acme", dict[str, int]().popitem).result(5)
    ok, fault = slow.result(5)
    assert (ok, fault["code"]) == (False, "call_timed_out")
    go_on.set()
    assert slow.result()[1]["code"] == "call_timed_out"
    deadlines.stop()
    threads.shutdown()
