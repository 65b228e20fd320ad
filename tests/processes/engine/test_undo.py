"""What follows a failure: steps are undone in reverse, steps of on_failure run, another process is told; each once."""

from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.monitor import logs
from appliance.processes.definitions.versions import PublishRequest
from appliance.processes.executions.service import EventAnswer, ExecutionFilter, list_executions
from appliance.processes.rehearsal.replay import ReplayRequest
from tests.processes.world import Bell, World, code, rule

from .test_engine import decide, define, ready, run_of

PLAIN = {"rule": {"expression": "= 1"}}
GATE = code("gate", "if (!input.open) throw new Error('closed'); return input")


def mark(what: str, **more: Any) -> dict[str, Any]:
    return {"datapool": {"collection": "marks", "create": {"values": {"what": what, **more}}}}


def done(step_id: str, **more: Any) -> dict[str, Any]:
    """A step that is undone by a mark with what it came to."""
    return {**rule(step_id, f"= '{step_id}'"), "undo": mark("= 'no ' + output", note="= error?.code ?? 'cancelled'"), **more}


def get_compensation(world: World, execution: Any) -> Any:
    return world.get(execution if isinstance(execution, str) else execution.id).aftermath


# -- decided


def test_the_engine_undoes_what_ended_last_first_and_one_after_the_other() -> None:
    undo = {"undo": [{"id": "ua", **PLAIN}, {"id": "ub", **PLAIN}]}
    flow = define({"id": "a", **PLAIN, **undo}, {"id": "b", **PLAIN, "undo": {**PLAIN}}, {"id": "c", **PLAIN})
    assert [step.path for step in flow.all_steps()] == ["a", "a/undo/ua", "a/undo/ub", "b", "b/undo/undo_b", "c"]
    runs = [run_of(flow, "a", "succeeded", undo_order=1), run_of(flow, "b", "succeeded", undo_order=2)]
    failed = run_of(flow, "c", "failed", error={"code": "x"})
    assert decide(flow, *runs, failed).failed is not None
    steps = ["b/undo/undo_b", "a/undo/ua", "a/undo/ub"]
    for number, path in enumerate(steps):
        over = [run_of(flow, each, "succeeded") for each in steps[:number]]
        assert ready(decide(flow, *runs, failed, *over, after="failed")) == [(path, "")]
    broken = run_of(flow, "b/undo/undo_b", "failed", error={"code": "y"})
    assert ready(decide(flow, *runs, failed, broken, after="failed")) == [("a/undo/ua", "")], "the others are undone all the same"
    assert decide(flow, *runs, failed, *(run_of(flow, each, "succeeded") for each in steps), after="failed").done


def test_steps_of_on_failure_come_last_and_not_for_what_is_cancelled() -> None:
    flow = define({"id": "a", **PLAIN}, on_failure={"steps": [{"id": "note", **PLAIN}]})
    assert ready(decide(flow)) == [("a", "")]
    assert ready(decide(flow, after="failed")) == [("on_failure/note", "")]
    assert decide(flow, after="cancelled").done


# -- run


def test_a_failed_execution_is_undone_in_reverse_and_stays_failed(world: World) -> None:
    execution = world.run([done("one"), done("two"), GATE, done("three")], {"open": False})
    assert (execution.status, execution.error["step"]) == ("failed", "gate")
    assert world.marks() == [("no two", execution.error["code"]), ("no one", execution.error["code"])]
    assert [place["path"] for place in get_compensation(world, execution)["undone"]] == ["two", "one"]
    assert get_compensation(world, execution)["not_undone"] == []
    runs = {run.path: run.status for run in world.steps(execution).values()}
    well = dict.fromkeys(("one", "two", "two/undo/undo_two", "one/undo/undo_one"), "succeeded")
    assert runs == {**well, "gate": "failed"}
    fine = world.run([done("one"), GATE], {"open": True})
    assert (fine.status, fine.aftermath) == ("succeeded", None)


def test_a_failed_undo_is_reported_and_does_not_prevent_others(world: World) -> None:
    broken = {**rule("two", "= 2"), "undo": {"integration": {"use": "bell", "action": "ring", "input": {"reject": True}}}}
    execution = world.run([done("one"), broken, GATE], {})
    assert execution.status == "failed"
    assert execution.error["step"] == "gate", "why it failed stays what is told"
    (left,) = get_compensation(world, execution)["not_undone"]
    assert (left["path"], left["error"]["code"]) == ("two", "connector_failed")
    assert [what for what, _ in world.marks()] == ["no one"]


def test_items_that_were_done_are_undone_each_with_its_own_output(world: World) -> None:
    step = {**rule("take", "= line * 10"), "undo": mark("= String(output) + line + index")}
    steps = [step, code("check", "if (input === 3) throw new Error('three')", input="= line")]
    execution = world.run([{"id": "each", "for_each": {"items": [1, 2, 3], "as": "line", "steps": steps}}])
    assert (execution.status, [what for what, _ in world.marks()]) == ("failed", ["3032", "2021", "1010"])
    assert [place["iteration"] for place in get_compensation(world, execution)["undone"]] == ["2", "1", "0"]


def test_a_waiting_execution_that_is_cancelled_is_undone_first(world: World) -> None:
    process = world.publish([done("one"), {"id": "event", "wait": {"event": "never"}}])
    execution = world.start(process)
    world.wait_for_status(execution, "waiting")
    assert world.flow.cancel_execution(world.scope, execution).status == "cancelling"
    assert world.finish(execution).status == "cancelled"
    assert world.marks() == [("no one", "cancelled")]
    assert db.rows("SELECT count(*) FROM pending_call WHERE execution_id = ?", (execution,)) == [(0,)]
    assert world.steps(execution)["event"].status == "cancelled"


def test_one_in_progress_that_is_cancelled_is_undone_too(world: World) -> None:
    hold = {"id": "hold", "integration": {"use": "bell", "action": "hold", "input": {}}}
    execution = world.start(world.publish([done("one"), hold]))
    assert Bell.arrived.acquire(timeout=10)
    world.flow.cancel_execution(world.scope, execution)
    assert world.finish(execution).status == "cancelled"
    Bell.go_on.set()
    assert world.marks() == [("no one", "cancelled")]


def test_undoing_that_waits_is_not_cancelled_any_more(world: World) -> None:
    undo = [{"id": "sure", "wait": {"event": "sure"}}, {"id": "gone", **mark("gone")}]
    execution = world.start(world.publish([{**rule("one", "= 1"), "undo": undo}, GATE]))
    row = world.wait_for_status(execution, "waiting")
    assert row.aftermath["status"] == "failed"
    world.flow.cancel_execution(world.scope, execution)
    (wait,) = world.get(execution).waiting_for["waits"]
    world.flow.resume_execution(world.scope, execution, row.process_id, EventAnswer(wait["token"], {}))
    assert world.finish(execution).status == "failed"
    assert [what for what, _ in world.marks()] == ["gone"]


def test_an_execution_that_took_too_long_has_time_to_be_undone(world: World) -> None:
    slow = code("slow", "for (;;);")
    for timeout in ("400ms", "4s", "20s"):  # on a busy machine the first step alone may take so long
        execution = world.run([done("one"), slow], timeout=timeout)
        assert execution.status == "timed_out"
        if world.marks():
            break
    assert [what for what, _ in world.marks()] == ["no one"]


def test_a_cached_output_is_not_undone(world: World) -> None:
    process = world.publish([done("one", cache={"ttl": "1h", "key": 1}), GATE])
    for marks in (1, 1):
        world.finish(world.start(process, {}))
        assert len(world.marks()) == marks


# -- on_failure


def test_steps_of_on_failure_see_the_error_and_change_nothing_about_the_end(world: World) -> None:
    steps = [{"id": "note", **mark("= error.step", note="= steps.one")}, code("fails", "throw new Error('again')")]
    execution = world.run([done("one"), GATE], {}, on_failure={"steps": steps})
    assert (execution.status, execution.error["step"]) == ("failed", "gate")
    assert [what for what, _ in world.marks()] == ["no one", "gate"]
    assert world.steps(execution)["fails"].status == "failed"


def handlers_of(world: World, execution: str) -> list[Any]:
    items = list_executions(world.scope, ExecutionFilter(), PageRequest(limit=500)).items
    return [each for each in items if each.handles == execution]


def test_a_process_is_started_with_what_failed_and_its_own_failure_ends_there(world: World) -> None:
    steps = [{"id": "note", **mark("= input.error.step", note="= input.execution.status")}, GATE]
    handler = world.publish(steps)
    world.save(handler, steps, on_failure={"process": handler})
    world.flow.publish_process(world.scope, handler, PublishRequest())
    failed = world.run([GATE], {"open": False, "n": 4}, on_failure={"process": handler})
    (row,) = handlers_of(world, failed.id)
    ended = world.finish(row.id)
    assert (ended.status, ended.input["input"], ended.parent) == ("failed", {"open": False, "n": 4}, failed.id)
    assert ended.input["execution"]["id"] == failed.id
    assert get_compensation(world, failed)["handler"] == {"process_id": handler, "execution_id": row.id}
    assert world.marks() == [("gate", "failed")]
    assert handlers_of(world, ended.id) == [], "a handler's failure is not handled"
    assert handlers_of(world, world.run([GATE], {"open": True}, on_failure={"process": handler}).id) == []


def test_a_handler_that_cannot_be_started_is_reported_and_does_not_block_the_end(world: World) -> None:
    failed = world.run([GATE], {}, on_failure={"process": "nobody"})
    assert failed.status == "failed"
    assert get_compensation(world, failed)["handler"]["error"]["code"] == "not_found"
    lines = logs.list_lines(world.scope, logs.LineFilter(execution_id=failed.id), PageRequest()).items
    assert any("nobody" in line.message for line in lines)


# -- retried and replayed


def test_a_retry_begins_with_what_was_undone(world: World) -> None:
    process = world.publish([rule("first", "= 1"), done("one"), rule("after", "= steps.one"), GATE])
    failed = world.finish(world.start(process, {}))
    with pytest.raises(Conflict, match="one has been undone"):
        world.flow.retry_execution(world.scope, failed.id, start_from="after")
    again = world.finish(world.flow.retry_execution(world.scope, failed.id).id)
    sources = {name: run.result_source for name, run in world.steps(again).items()}
    assert [sources[name] for name in ("first", "one", "after")] == ["reused", "executed", "executed"]
    assert len(world.marks()) == 2, "done again, and undone again"


def test_nothing_is_retried_from_what_only_follows_a_failure(world: World) -> None:
    failed = world.run([done("one"), GATE], {})
    with pytest.raises(ValidationFailed, match="only runs after an execution has failed"):
        world.flow.retry_execution(world.scope, failed.id, start_from="undo_one")
    plan = world.flow.plan_retry(world.scope, failed.id)
    assert {step.path for step in plan.steps} == {"one", "gate"}


def test_a_retry_undoes_reused_steps_that_became_undoable(world: World) -> None:
    broken = {**rule("two", "= 2"), "undo": {"integration": {"use": "bell", "action": "ring", "input": {"fail": 1}}}}
    failed = world.run([broken, GATE], {})
    assert get_compensation(world, failed)["undone"] == []
    again = world.finish(world.flow.retry_execution(world.scope, failed.id).id)
    assert world.steps(again)["two"].result_source == "reused"
    assert [place["path"] for place in get_compensation(world, again)["not_undone"]] == ["two"]


def test_an_undone_execution_replays_as_it_was(world: World) -> None:
    ring = {"integration": {"use": "bell", "action": "ring", "input": {"why": "= error.step"}}}
    steps = [done("one"), {**rule("two", "= 2"), "undo": [{"id": "ring", **ring}, rule("sum", "= output + 1")]}, GATE]
    process = world.publish(steps, on_failure={"steps": [rule("note", "= error.code")]})
    failed = world.finish(world.start(process, {}))
    replay = world.flow.replay_execution(world.scope, failed.id, ReplayRequest())
    assert replay.is_identical, [(each.path, each.result, each.divergence) for each in replay.steps]
    assert {each.path for each in replay.steps} >= {"two/undo/ring", "two/undo/sum", "one/undo/undo_one", "on_failure/note"}
    assert len(Bell.rung) == 1
    process = world.publish([done("one"), {"id": "event", "wait": {"event": "never"}}])
    execution = world.start(process)
    world.wait_for_status(execution, "waiting")
    world.flow.cancel_execution(world.scope, execution)
    world.finish(execution)
    assert world.flow.replay_execution(world.scope, execution, ReplayRequest()).is_identical


def test_a_child_is_undone_before_its_parent_is_answered(world: World) -> None:
    child = world.publish([done("one"), GATE])
    parent = world.run([{"id": "sub", "process": {"use": child, "input": {}}}])
    assert (parent.status, parent.error["code"]) == ("failed", "child_failed")
    assert [what for what, _ in world.marks()] == ["no one"]
