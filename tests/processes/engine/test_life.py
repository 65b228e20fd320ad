"""What may happen to an execution from outside: cancelling, timeouts, stops, retries, schedules, priorities."""

import os
import signal
import threading

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, ExecutionFinished, NotFound, ValidationFailed
from appliance.processes.definitions import versions
from appliance.processes.engine import store
from appliance.processes.executions import service as executions
from tests.processes.world import Bell, Wall, World, code, rule, wait_until

HOLD = {"use": "bell", "action": "hold"}
WRITE_AND_HOLD = "await api.datapool.create('marks', {what: 'a'}); return await api.integrations.execute('bell', 'hold', {})"
EVERLASTING = "for (;;) {}"


def cancel(world: World, execution: str) -> str:
    return str(world.flow.cancel_execution(world.scope, execution).status)


# -- cancelling


def test_a_step_that_waits_for_a_host_call_is_cancelled_at_once(world: World) -> None:
    execution = world.start(world.publish([code("a", WRITE_AND_HOLD), rule("b", "= 1")]))
    assert Bell.arrived.acquire(timeout=10)
    assert cancel(world, execution) == "cancelling"
    row = world.finish(execution, 5)
    Bell.go_on.set()
    assert (row.status, row.output, row.error) == ("cancelled", None, None)
    assert world.steps(row)["a"].status == "cancelled"
    with pytest.raises(ExecutionFinished):
        cancel(world, execution)


def test_a_cancel_that_another_process_took_reaches_the_step_in_progress(world: World) -> None:
    execution = world.start(world.publish([code("a", EVERLASTING)]))
    wait_until(lambda: world.pool.health()["busy"])
    db.write(lambda: executions.cancel_rows(world.scope, execution, None))
    assert world.finish(execution, 5).status == "cancelled"


def test_a_for_each_in_progress_is_cancelled_with_all_its_items(world: World) -> None:
    inner = code("a", "return await api.integrations.execute('bell', 'hold', {})")
    each = {"id": "each", "for_each": {"items": [1, 2, 3, 4], "concurrency": 2, "steps": [inner]}}
    execution = world.start(world.publish([each]))
    assert all(Bell.arrived.acquire(timeout=10) for _ in range(2))
    cancel(world, execution)
    row = world.finish(execution, 5)
    Bell.go_on.set()
    assert row.status == "cancelled"
    assert {run.status for run in world.steps(row).values()} == {"cancelled"}


def test_waiting_scheduled_and_retrying_executions_are_cancelled_without_a_worker(world: World) -> None:
    ring = {"id": "a", "integration": {"use": "bell", "action": "ring", "input": {"fail": 9}}}
    retrying = world.start(world.publish([{**ring, "retry": {"max_attempts": 5, "initial": "1h"}}]))
    waiting = world.start(world.publish([{"id": "a", "wait": {"for": "1h"}}]))
    scheduled = world.start(world.publish([rule("a", "= 1")]), run_at=clock.now_ms() + 3_600_000)
    for execution in (retrying, waiting):
        world.wait_for_status(execution, "waiting")
    assert world.get(scheduled).status == "scheduled"
    for execution in (retrying, waiting, scheduled):
        assert cancel(world, execution) == "cancelled"
        assert world.get(execution).finished_at is not None
        assert {run.status for run in world.steps(execution).values()} <= {"cancelled"}


# -- timeouts


def test_a_process_timeout_ends_the_step_in_progress(world: World) -> None:
    row = world.run([code("a", EVERLASTING), rule("b", "= 1")], timeout="300ms")
    assert (row.status, row.error["code"], row.failure_class) == ("timed_out", "execution_timeout", "timeout")
    assert "b" not in world.steps(row)


def test_a_step_timeout_fails_the_step_only(world: World) -> None:
    row = world.run([code("a", EVERLASTING, timeout="200ms")])
    assert (row.status, row.error["code"], row.failure_class) == ("failed", "time_limit", "timeout")


def test_waiting_is_not_counted_as_active_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(monkeypatch)
    steps = [
        code("a", "const until = Date.now() + 60; while (Date.now() < until) {} return 1"),
        {"id": "p", "wait": {"for": "1h"}},
        rule("b", "= 2"),
    ]
    execution = world.start(world.publish(steps, timeout="30s"))
    world.wait_for_status(execution, "waiting")
    wall.offset = 3_600_000
    row = world.finish(execution)
    assert row.status == "succeeded", row.error
    assert 20 <= row.active_ms < 30_000


# -- long steps


def test_a_long_step_is_shown_as_running_and_keeps_its_lease(world: World) -> None:
    execution = world.start(world.publish([{"id": "slow", "integration": {**HOLD, "input": {"n": 1}}}]))
    run = wait_until(lambda: world.steps(execution).get("slow"))
    assert (run.status, run.attempt, run.input, run.finished_at) == ("running", 1, {"n": 1}, None)
    Bell.go_on.set()
    assert world.finish(execution).status == "succeeded"
    assert world.steps(execution)["slow"].status == "succeeded"
    events = [(e.type, e.data.get("status")) for e in executions.events_after(world.scope, execution, 0)]
    assert events == [("running", "running"), ("step", "running"), ("step", "succeeded"), ("succeeded", "succeeded")]


# -- workers that die, and poison


# -- retrying


def failing_once(world: World) -> tuple[str, str]:
    """(process, failed execution): write, a for_each whose second item fails while the bell is cracked, end."""
    inner = code(
        "ring",
        "return await api.integrations.execute('bell', 'ring', {n: input.n, reject: input.n === 2 && input.bad})",
        input={"n": "= item", "bad": "= input.bad"},
    )
    mark = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "marked"}}}}
    steps = [mark, {"id": "each", "for_each": {"items": [1, 2, 3], "steps": [inner]}}, rule("end", "= steps.each.length")]
    process = world.publish(steps)
    failed = world.finish(world.start(process, {"bad": True}, label="L", priority=3))
    assert failed.status == "failed"
    return process, failed.id


def test_a_retry_from_failed_keeps_what_succeeded(world: World) -> None:
    process, failed = failing_once(world)
    rung = len(Bell.rung)
    again = world.finish(world.flow.retry_execution(world.scope, failed, process_id=process).id)
    assert (again.status, again.retry_of, again.label_text, again.priority) == ("failed", failed, "L", 3)
    sources = {name: (run.status, run.result_source) for name, run in world.steps(again).items()}
    assert sources["mark"] == ("succeeded", "reused")
    assert sources["ring@0"] == ("succeeded", "reused")
    assert sources["ring@1"] == ("failed", "executed")
    assert len(world.marks()) == 1
    assert len(Bell.rung) == rung + 1


def test_a_retry_with_the_published_version_continues_in_the_new_one(world: World) -> None:
    process, failed = failing_once(world)
    inner = code("ring", "return 'mended'")
    mark = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "marked"}}}}
    world.save(process, [mark, {"id": "each", "for_each": {"items": [1, 2, 3], "steps": [inner]}}, rule("end", "= steps.each")])
    world.flow.publish_process(world.scope, process, versions.PublishRequest())
    again = world.finish(world.flow.retry_execution(world.scope, failed, published=True).id)
    assert again.version == 2
    assert again.output[1:] == ["mended", "mended"]
    assert len(world.marks()) == 1


def test_a_retry_from_the_start_or_from_a_step(world: World) -> None:
    process, failed = failing_once(world)
    from_start = world.finish(world.flow.retry_execution(world.scope, failed, start_from="start", process_id=process).id)
    assert world.steps(from_start)["mark"].result_source == "executed"
    from_each = world.finish(world.flow.retry_execution(world.scope, failed, start_from="each").id)
    steps = world.steps(from_each)
    assert (steps["mark"].result_source, steps["ring@0"].result_source) == ("reused", "executed")
    assert len(world.marks()) == 2
    with pytest.raises(ValidationFailed):
        world.flow.retry_execution(world.scope, failed, start_from="rang")


def test_executions_that_cannot_be_retried_are_refused(world: World) -> None:
    process = world.publish([{"id": "a", "wait": {"for": "1h"}}])
    execution = world.start(process)
    with pytest.raises(Conflict):
        world.flow.retry_execution(world.scope, execution)
    cancel(world, execution)
    done = world.run([rule("a", "= 1")])
    with pytest.raises(Conflict):
        world.flow.retry_execution(world.scope, done.id)
    with pytest.raises(NotFound):
        world.flow.retry_execution(world.other, done.id)


def test_a_cancelled_wait_can_be_retried_in_the_middle_of_a_for_each(world: World) -> None:
    pause = {"id": "pause", "wait": {"for": "= item"}}
    process = world.publish([{"id": "each", "for_each": {"items": ["1ms", "1h"], "concurrency": 2, "steps": [pause]}}])
    execution = world.start(process)
    world.wait_for_status(execution, "waiting")
    wait_until(lambda: world.steps(execution).get("pause@0") and world.steps(execution)["pause@0"].status == "succeeded")
    world.wait_for_status(execution, "waiting")
    cancel(world, execution)
    again = world.flow.retry_execution(world.scope, execution)
    world.wait_for_status(again.id, "waiting")
    assert world.steps(again.id)["pause@0"].result_source == "reused"
    cancel(world, again.id)


# -- starting


def test_a_scheduled_execution_begins_when_it_is_due_and_not_before(world: World) -> None:
    due = clock.now_ms() + 400
    row = world.finish(world.start(world.publish([rule("a", "= 1")]), run_at=due))
    assert row.status == "succeeded"
    assert due <= row.started_at < due + 15_000


def test_the_same_token_answers_the_same_execution(world: World) -> None:
    process = world.publish([{"id": "w", "datapool": {"collection": "marks", "create": {"values": {"what": "once"}}}}])
    result = {world.start(process, token="t1") for _ in range(3)}
    world.finish(result.pop())
    assert not result
    assert len(world.marks()) == 1


def test_deleting_a_process_ends_its_executions_and_drops_its_cached_code(world: World) -> None:
    process = world.publish([{"id": "a", "integration": HOLD}])
    execution = world.start(process)
    assert Bell.arrived.acquire(timeout=10)
    with pytest.raises(Conflict):
        world.flow.delete_process(world.scope, process)
    world.flow.delete_process(world.scope, process, force=True)
    Bell.go_on.set()
    with pytest.raises(NotFound):
        world.get(execution)
    world.save(process, [rule("a", "= 'new'")])
    world.flow.publish_process(world.scope, process, versions.PublishRequest())
    assert world.finish(world.start(process)).output == "new"


def test_input_that_breaks_the_schema_leaves_no_execution(world: World) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    process = world.publish([rule("a", "= input.n")], input=schema)
    for input_data in ({}, {"n": "x"}, {"n": 1, "m": 2}):
        with pytest.raises(ValidationFailed) as refused:
            world.start(process, input_data)
        assert refused.value.details
    assert db.rows("SELECT count(*) FROM execution WHERE process_id = ?", (process,)) == [(0,)]


def test_many_at_once_all_finish(world: World) -> None:
    process = world.publish([code("a", "return input.n * 2"), {"id": "p", "wait": {"for": "5ms"}}, rule("b", "= steps.a + 1")])
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(world.start(process, {"n": n}, soon=n % 2 == 0))) for n in range(40)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(world.finish(each).output for each in results) == sorted(n * 2 + 1 for n in range(40))


# -- sandbox processes that are killed


def test_a_killed_sandbox_process_costs_no_attempt_and_repeats_no_write(world: World) -> None:
    body = """
      await api.datapool.create('marks', {what: 'a', note: String(Math.random())});
      await api.integrations.execute('bell', 'hold', {});
      await api.datapool.create('marks', {what: 'b'});
      return 'done';
    """
    execution = world.start(world.publish([code("a", body)]))
    assert Bell.arrived.acquire(timeout=10)
    for process in world.pool.process_ids():
        os.kill(process, signal.SIGKILL)
    Bell.go_on.set()
    row = world.finish(execution)
    assert (row.status, row.output) == ("succeeded", "done"), row.error
    assert world.steps(row)["a"].attempt == 1
    assert sorted(what for what, _ in world.marks()) == ["a", "b"]
    assert len({key for key, _ in Bell.rung}) == 1


def test_a_step_whose_process_dies_every_time_fails_as_system_in_the_end(world: World) -> None:
    body = "await api.integrations.execute('bell', 'ring', {}); for (;;) {}"
    execution = world.start(world.publish([code("a", body)]))
    assert Bell.arrived.acquire(timeout=10)

    def kill_while_running() -> bool:
        if world.pool.health()["busy"]:
            for process in world.pool.process_ids():
                os.kill(process, signal.SIGKILL)
        return world.get(execution).status in store.FINISHED

    wait_until(kill_while_running)
    row = world.get(execution)
    assert (row.status, row.error["code"], row.failure_class) == ("failed", "sandbox_lost", "system")
    assert len(Bell.rung) == 1
    wait_until(lambda: world.pool.health()["processes"] == 2)
