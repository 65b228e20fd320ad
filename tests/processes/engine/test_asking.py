"""Steps that wait for a person, an event or another process, without any code."""

from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.governance.approvals import approvals
from appliance.monitor import Summary, read_total
from appliance.processes.executions.service import ExecutionFilter, list_executions
from tests.processes.rehearsal.replaying import replay, results
from tests.processes.world import Wall, World, code, rule, wait_until

from .test_suspend import decide, send_event, waiting

EVENT = {"id": "event", "wait": {"event": "paid-{{ input.n }}", "timeout": "= input.within ?? '1h'"}}
APPROVE = {"id": "approve", "human": {"kind": "approval", "title": "Ship {{ input.n }}?", "details": {"n": "= input.n"}}}
RETRY = {"max_attempts": 2, "initial": "1ms", "classes": ["timeout", "user_code"]}


def start(world: World, steps: list[dict[str, Any]], payload: Any = None) -> str:
    """An execution of a process without any grant."""
    return world.start(world.publish(steps, grants={}), payload or {"n": 7})


def children_of(world: World, execution: str) -> list[Any]:
    items = list_executions(world.scope, ExecutionFilter(), PageRequest(limit=500)).items
    return sorted((each for each in items if each.parent == execution), key=lambda each: each.id)


def list_requests(world: World, execution: str) -> list[approvals.Approval]:
    items = approvals.list_approvals(world.scope, approvals.ApprovalFilter(execution_id=execution), PageRequest()).items
    return sorted(items, key=lambda each: each.created_at)


def nothing_waits() -> bool:
    return bool(db.rows("SELECT count(*) FROM pending_call") == [(0,)])


# -- events


def test_the_input_of_an_event_is_the_output(world: World) -> None:
    execution = start(world, [EVENT, rule("seen", "= steps.event.sum * 2")])
    (wait,) = waiting(world, execution)
    row = world.get(execution)
    assert (row.wait_reason, wait["kind"], wait["name"], wait["step"]) == ("event", "event", "paid-7", "event")
    assert world.steps(row)["event"].status == "waiting"
    send_event(world, execution, wait["token"], {"sum": 21})
    done = world.finish(execution)
    assert (done.output, world.steps(done)["event"].input) == (42, {"event": "paid-7", "timeout": "1h"})
    assert nothing_waits()


def test_an_event_that_does_not_come_fails_the_step_and_may_be_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = Wall(monkeypatch)
    failed = world.finish(start(world, [EVENT], {"n": 1, "within": "5ms"}))
    assert (failed.status, failed.error["code"], failed.failure_class) == ("failed", "wait_timed_out", "timeout")
    execution = start(world, [{**EVENT, "retry": RETRY}], {"n": 1, "within": "1h"})
    (first,) = waiting(world, execution)
    wall.offset = 3_600_000
    wait_until(lambda: world.steps(execution)["event"].attempt == 2)
    (second,) = waiting(world, execution)
    assert first["token"] != second["token"]
    send_event(world, execution, second["token"], "late")
    assert world.finish(execution).output == "late"
    assert nothing_waits()


@pytest.mark.parametrize(("payload", "code_"), [({"n": "x" * 300}, "event_invalid"), ({"n": 1, "within": 5}, "time_invalid")])
def test_an_invalid_event_name_or_timeout_fails(world: World, payload: Any, code_: str) -> None:
    assert world.finish(start(world, [EVENT], payload)).error["code"] == code_


# -- people


def test_what_a_person_decides_is_the_output_and_a_rejection_is_no_failure(world: World) -> None:
    for status in ("approved", "rejected"):
        execution = start(world, [APPROVE, rule("after", "= steps.approve.status")])
        (wait,) = waiting(world, execution)
        assert (world.get(execution).wait_reason, wait["kind"], wait["title"]) == ("approval", "human", "Ship 7?")
        (request,) = list_requests(world, execution)
        assert (request.request.details, request.origin.step) == ({"n": 7}, "approve")
        decide(world, wait["approval_id"], status)
        done = world.finish(execution)
        assert done.output == status
        answer = world.steps(done)["approve"].output
        assert (answer["comment"], answer["decided_by"], answer["request_id"]) == ("fine", "ann", request.id)
    assert nothing_waits()


def times_of(world: World, process: str) -> tuple[Summary, Summary]:
    """What was counted of working and of waiting."""
    return read_total(world.scope, "execution", process, 0), read_total(world.scope, "waiting", process, 0)


def test_the_time_of_waiting_for_a_person_is_counted_apart(world: World) -> None:
    execution = start(world, [APPROVE, rule("after", "= steps.approve.status")])
    (wait,) = waiting(world, execution)
    hour = 3_600_000
    db.write(lambda: db.execute("UPDATE execution SET started_at = started_at - ? WHERE id = ?", (hour, execution)))
    decide(world, wait["approval_id"], "approved")
    done = world.finish(execution)
    process, duration = done.process_id, done.finished_at - done.started_at
    worked, waited = times_of(world, process)
    assert (worked.count, waited.count, worked.sum_ms + waited.sum_ms) == (1, 1, duration)
    assert (waited.sum_ms >= hour, worked.percentile(0.95) == worked.sum_ms, waited.percentile(0.5) == waited.sum_ms) == (True,) * 3
    at_once = world.finish(start(world, [rule("only", "= 1")]))
    worked, waited = times_of(world, at_once.process_id)
    assert (waited.count, worked.sum_ms) == (0, at_once.finished_at - at_once.started_at)


@pytest.mark.parametrize(("on_timeout", "status"), [(None, "rejected"), ("reject", "rejected"), ("continue", "expired")])
def test_a_request_not_decided_in_time_follows_on_timeout(world: World, on_timeout: str | None, status: str) -> None:
    human = {**APPROVE["human"], "expires": "1s"} | ({"on_timeout": on_timeout} if on_timeout else {})  # type: ignore[dict-item]
    done = world.finish(start(world, [{"id": "approve", "human": human}]))
    assert (done.status, done.output["status"], done.output["decided_by"]) == ("succeeded", status, None)
    assert [each.status for each in list_requests(world, done.id)] == ["expired"]


def test_on_timeout_fail_fails_the_step_and_a_retry_asks_again(world: World) -> None:
    human = {"kind": "choice", "title": "Which?", "choices": ["a", "b"], "expires": "1s", "on_timeout": "fail"}
    execution = start(world, [{"id": "which", "human": human, "retry": RETRY}])
    failed = world.finish(execution)
    assert (failed.error["code"], failed.failure_class, failed.error["attempt"]) == ("approval_expired", "timeout", 2)
    assert [each.status for each in list_requests(world, execution)] == ["expired", "expired"]


def test_an_invalid_request_fails_the_step(world: World) -> None:
    failed = world.finish(start(world, [APPROVE], {"n": "x" * 300}))
    assert (failed.error["code"], failed.failure_class) == ("validation_failed", "validation")


# -- processes


def test_the_output_of_a_child_is_the_output(world: World) -> None:
    child = world.publish([rule("double", "= input.n * 2")])
    execution = start(world, [{"id": "sub", "process": {"use": child, "input": {"n": "= input.n + 1"}}}, rule("z", "= steps.sub")])
    done = world.finish(execution)
    assert (done.output, world.steps(done)["sub"].input) == (16, {"n": 8})
    assert world.finish(start(world, [{"id": "sub", "process": {"use": child}}])).output == 14  # the execution's own input
    assert nothing_waits()


def test_a_child_without_wait_runs_independently(world: World) -> None:
    child = world.publish([rule("double", "= input.n * 2")])
    done = world.finish(start(world, [{"id": "sub", "process": {"use": child, "wait": False}}]))
    (row,) = children_of(world, done.id)
    assert (done.output["execution_id"], done.output["process_id"]) == (row.id, child)
    assert world.finish(row.id).output == 14


def test_a_failing_child_fails_the_step_and_a_retry_starts_another(world: World) -> None:
    child = world.publish([code("a", "throw new Error('no luck')")])
    done = world.finish(start(world, [{"id": "sub", "process": {"use": child}, "retry": RETRY}]))
    assert (done.error["code"], done.failure_class, done.error["attempt"]) == ("child_failed", "user_code", 2)
    assert "no luck" in done.error["message"]
    assert "child" in done.error["next"]
    rows = children_of(world, done.id)
    assert [each.status for each in rows] == ["failed", "failed"]
    assert rows[1].id in done.error["message"]


def test_a_child_that_cannot_be_started_fails_the_step(world: World) -> None:
    assert world.finish(start(world, [{"id": "s", "process": {"use": "none-such"}}])).error["code"] == "not_found"
    strict = world.publish([rule("a", "= 1")], input={"type": "object", "required": ["m"]})
    assert world.finish(start(world, [{"id": "s", "process": {"use": strict}}])).failure_class == "validation"


# -- together


def test_a_cancel_withdraws_everything_that_is_asked(world: World) -> None:
    child = world.publish([{"id": "long", "wait": {"for": "1h"}}])
    processes = {"a": [APPROVE], "b": [EVENT], "c": [{"id": "sub", "process": {"use": child}}]}
    execution = start(world, [{"id": "all", "parallel": processes}])
    waits = waiting(world, execution, 3)
    assert {wait["kind"] for wait in waits} == {"human", "event", "child"}
    wait_until(lambda: [each.status for each in children_of(world, execution)] == ["waiting"])
    world.flow.cancel_execution(world.scope, execution)
    assert [each.status for each in list_requests(world, execution)] == ["cancelled"]
    assert [each.status for each in children_of(world, execution)] == ["cancelled"]
    assert {name: run.status for name, run in world.steps(execution).items()} == dict.fromkeys(
        ("all", "approve", "event", "sub"), "cancelled"
    )
    assert nothing_waits()


def test_a_skipped_step_makes_no_request_and_each_for_each_item_makes_its_own(world: World) -> None:
    each = {"items": [1, 2], "concurrency": 2, "steps": [{"id": "e", "when": "= item > 1", "wait": {"event": "n{{ item }}"}}]}
    execution = start(world, [{"id": "each", "for_each": each}])
    (wait,) = waiting(world, execution)
    assert (wait["name"], wait["iteration"]) == ("n2", "1")
    send_event(world, execution, wait["token"], 5)
    assert world.finish(execution).output == [None, 5]


def test_an_output_that_is_too_large_fails_the_step(world: World) -> None:
    execution = start(world, [EVENT])
    (wait,) = waiting(world, execution)
    send_event(world, execution, wait["token"], "x" * (world.runner.tools.output_bytes + 1))
    assert world.finish(execution).error["code"] == "output_too_large"


def test_answers_are_replayed_while_the_same_is_asked(world: World) -> None:
    child = world.publish([rule("double", "= input.n * 2")])
    execution = start(world, [APPROVE, {**EVENT, "retry": RETRY}, {"id": "sub", "process": {"use": child}}])
    decide(world, waiting(world, execution)[0]["approval_id"], "rejected")
    wait_until(lambda: world.get(execution).wait_reason == "event")
    send_event(world, execution, waiting(world, execution)[0]["token"], "came")
    row = world.finish(execution)
    assert set(results(replay(world, row)).values()) == {"identical"}
    assert len(children_of(world, execution)) == 1
    other = {"id": "approve", "human": {**APPROVE["human"], "title": "Send {{ input.n }}?"}}  # type: ignore[dict-item]
    world.save(row.process_id, [other, EVENT, {"id": "sub", "process": {"use": child, "input": {"n": 1}}}], grants={})
    result = results(replay(world, row, draft=True))
    assert (result["approve"], result["event"], result["sub"]) == ("diverged", "identical", "diverged")


def test_a_retry_keeps_answers(world: World) -> None:
    execution = start(world, [EVENT, rule("bad", "= steps.event.none.such")])
    send_event(world, execution, waiting(world, execution)[0]["token"], {})
    failed = world.finish(execution)
    again = world.finish(world.flow.retry_execution(world.scope, failed.id).id)
    assert (again.error["step"], world.steps(again)["event"].result_source) == ("bad", "reused")
