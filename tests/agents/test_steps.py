"""The step kind `agent`: it starts a run, waits for it, and goes on with what that answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.agents import runs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import DefinitionInvalid, Overloaded
from appliance.core.pages import PageRequest
from appliance.monitor import AuditFilter, audit
from appliance.processes.definitions import PublishRequest
from appliance.processes.executions import service as executions
from appliance.processes.rehearsal import ReplayRequest
from tests.agents.stepping import INPUT, STEP, Stepping, open_stepping
from tests.agents.world import ALLOW, ASK, TAINTED, book, calls, mark, says
from tests.processes.world import Wall


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stepping]:
    with open_stepping(tmp_path_factory.mktemp("steps")) as opened:
        yield opened


@pytest.fixture
def stepping(opened: Stepping) -> Stepping:
    opened.wipe()
    return opened


def wait_of(stepping: Stepping, execution_id: str) -> dict[str, Any]:
    """The only wait of the execution."""
    ((wait),) = (stepping.get(execution_id).waiting_for or {})["waits"]
    return dict(wait)


def audit_fields(stepping: Stepping, action: str) -> list[dict[str, Any]]:
    entries = audit.list_entries(stepping.world.scope, AuditFilter(action=action), PageRequest(500))
    return [json.loads(each.fields) for each in entries.items]


@pytest.mark.parametrize("jump", [7_200_000, -7_200_000])
def test_a_pause_of_a_run_keeps_its_length_when_the_clock_is_set(
    stepping: Stepping, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """The deadline of an approval is a point in time, and stays."""
    wall, world = Wall(monkeypatch), stepping.world
    stepping.flow.runner.jumps.refresh()
    world.make(Overloaded("busy", extra={"retryable": True, "retry_after": 600}), says("x"))
    (pausing,) = stepping.runs(stepping.start())
    world.drive(pausing.id)
    world.make(calls(book(amount=1)), says("x"), rules=[ASK, ALLOW])
    (asking,) = stepping.runs(stepping.start())
    world.drive(asking.id)

    def due(run_id: str) -> int:
        ((at,),) = db.rows("SELECT next_run_at FROM agent_run WHERE id = ?", (run_id,))
        return int(at)

    before = due(asking.id)
    wall.jumped = jump
    stepping.flow.runner.jumps.now_ms()
    assert 540_000 < due(pausing.id) - clock.now_ms() <= 600_000
    assert due(asking.id) == before
    wall.jumped = 0
    stepping.flow.runner.jumps.now_ms()


def test_the_step_waits_for_the_run_and_its_output_is_the_runs(stepping: Stepping) -> None:
    stepping.world.make(calls(mark("seen")), says("high"))
    execution_id = stepping.start(output="= steps.triage")
    row, (run,) = stepping.get(execution_id), stepping.runs(execution_id)
    assert (row.status, row.wait_reason, run.status, run.input) == ("waiting", "child", "queued", INPUT)
    wait = wait_of(stepping, execution_id)
    assert {name: wait[name] for name in ("kind", "step", "agent_id", "run_id")} == {
        "kind": "agent", "step": "triage", "agent_id": "clerk", "run_id": run.id,
    }  # fmt: skip
    assert run.origin is not None
    assert (run.origin.execution_id, run.origin.step) == (execution_id, "triage")
    stepping.world.drive(run.id)
    row = stepping.drive(execution_id)
    assert (row.status, row.output, stepping.world.marks()) == ("succeeded", "high", ["seen"])


def test_an_approval_inside_the_run_shows_through(stepping: Stepping) -> None:
    stepping.world.make(calls(book(amount=1)), says("done"), rules=[{**ASK, "operations": ["set"]}, ALLOW, TAINTED])
    execution_id = stepping.start()
    (run,) = stepping.runs(execution_id)
    stepping.world.drive(run.id)
    (approval,) = stepping.world.list_approvals("pending")
    wait = wait_of(stepping, execution_id)
    assert (wait["reason"], wait["approval_id"], wait["run_id"]) == ("approval", approval.id, run.id)
    assert stepping.get(execution_id).wait_reason == "child"
    assert approval.requested_by == "key:test", "whoever began the execution approves nothing in it"
    stepping.world.decide()
    stepping.world.drive(run.id)
    assert "approval_id" not in wait_of(stepping, execution_id)
    assert stepping.drive(execution_id).output == "done"


def test_an_approval_still_shows_after_something_beside_it(stepping: Stepping) -> None:
    stepping.world.make(calls(book(amount=1)), says("done"), rules=[{**ASK, "operations": ["set"]}, ALLOW, TAINTED])
    beside = {"id": "pay", "wait": {"event": "paid"}}
    execution_id = stepping.start({"id": "both", "parallel": {"one": [STEP], "other": [beside]}})
    (run,) = stepping.runs(execution_id)
    stepping.world.drive(run.id)
    waits = (stepping.get(execution_id).waiting_for or {})["waits"]
    token = next(each["token"] for each in waits if each["kind"] == "event")
    answer = executions.EventAnswer(token, {})
    stepping.flow.resume_execution(stepping.world.scope, execution_id, stepping.get(execution_id).process_id, answer)
    stepping.drive(execution_id)
    wait = wait_of(stepping, execution_id)
    assert (wait["run_id"], wait["approval_id"]) == (run.id, stepping.world.list_approvals("pending")[0].id)


def test_a_cancelled_execution_cancels_the_run_and_its_requests(stepping: Stepping) -> None:
    stepping.world.make(calls(book(amount=1)), says("done"), rules=[{**ASK, "operations": ["set"]}, ALLOW, TAINTED])
    execution_id = stepping.start()
    (run,) = stepping.runs(execution_id)
    stepping.world.drive(run.id)
    stepping.flow.cancel_execution(stepping.world.scope, execution_id)
    assert stepping.get(execution_id).status == "cancelled"
    assert stepping.world.get(run.id).status == "cancelled"
    assert [each.status for each in stepping.world.list_approvals()] == ["cancelled"]


def test_a_step_waits_no_longer_than_it_says(stepping: Stepping) -> None:
    stepping.world.make(says("done"))
    execution_id = stepping.start({"id": "triage", "agent": {"use": "clerk", "timeout": "2h"}})
    for due in ("UPDATE execution SET next_run_at = 1", "UPDATE step_run SET next_run_at = 1"):
        db.write(lambda due=due: db.execute(due))  # type: ignore[misc]
    row, (run,) = stepping.drive(execution_id), stepping.runs(execution_id)
    assert (row.status, (row.error or {})["code"], row.failure_class) == ("failed", "wait_timed_out", "timeout")
    assert run.status == "cancelled"


def test_a_failed_run_fails_the_step_and_a_retry_starts_another(stepping: Stepping) -> None:
    stepping.world.make(calls(mark("done before")), says("never"), budget={"turns": 1})
    execution_id = stepping.start()
    row, (run,) = stepping.finish(execution_id), stepping.runs(execution_id)
    error = row.error or {}
    assert (row.status, error["code"], error["failure_class"], error["run_id"]) == ("failed", "agent_failed", "policy", run.id)
    assert "trace of the run" in error["next"]
    assert "budget" in error["message"]
    plan = stepping.flow.plan_retry(stepping.world.scope, execution_id)
    assert [(each.target, each.certain) for each in plan.effects] == [("clerk", True), ("clerk/write_entities", False)]
    stepping.world.make(says("better"))
    again = stepping.flow.retry_execution(stepping.world.scope, execution_id).id
    assert stepping.finish(again).output == "better"
    assert len(stepping.runs(again)) == 1
    assert stepping.runs(again)[0].id != run.id


def test_a_run_that_somebody_cancels_fails_the_step(stepping: Stepping) -> None:
    stepping.world.make(says("done"))
    execution_id = stepping.start()
    (run,) = stepping.runs(execution_id)
    runs.cancel_run(stepping.world.scope, "clerk", run.id)
    row = stepping.drive(execution_id)
    assert (row.status, (row.error or {})["code"]) == ("failed", "agent_failed")
    assert "cancelled by key:test" in (row.error or {})["message"]


def test_an_attempt_after_a_failure_is_another_run(stepping: Stepping) -> None:
    stepping.world.make(says("never"), budget={"turns": 1}, output={"type": "object", "required": ["a"]})
    step = {**STEP, "retry": {"max_attempts": 2, "initial": "1ms", "classes": ["policy", "validation"]}}
    execution_id = stepping.start(step)
    row = stepping.finish(execution_id)
    assert (row.status, [run.origin and run.origin.attempt for run in stepping.runs(execution_id)]) == ("failed", [1, 2])


def test_a_run_calls_only_what_is_granted(stepping: Stepping) -> None:
    stepping.world.make(calls(book(amount=1)), calls(mark("no")), says("done"))
    execution_id = stepping.start(grants={"integrations": {"books": ["look"]}, "datapool": {"marks": ["read"]}})
    row, (run,) = stepping.finish(execution_id), stepping.runs(execution_id)
    assert (row.status, stepping.world.marks(), stepping.world.booked()) == ("succeeded", [], [])
    (refused,) = [entry.data["error"] for entry in stepping.world.journal(run.id) if entry.kind == "returned"]
    assert refused["reason"] == "not_granted"
    assert "integrations: {books: [set]}" in refused["message"]
    denials = [each for each in audit_fields(stepping, "policy.deny") if each["run"] == run.id]
    assert [(each["tool"], each["reason"]) for each in denials] == [("execute_tenant_integration", "not_granted")]
    assert "write_entities" in stepping.world.script.transcript(), "without a grant to write there is no tool for it"


def test_the_grants_of_the_step_come_before_those_of_the_process(stepping: Stepping) -> None:
    stepping.world.make(calls(mark("no")), says("done"))
    other = {"datapool": {"others": ["write"]}}
    stepping.finish(stepping.start({**STEP, "grants": other}))
    assert stepping.world.marks() == []


def test_the_taint_of_a_run_taints_its_execution(stepping: Stepping) -> None:
    stepping.world.make(calls(book("look")), says("set it to 7"), rules=[{**ALLOW, "subject": {"kinds": ["agent"]}}])
    push = {"id": "push", "integration": {"use": "books", "action": "set", "input": {"amount": 7}}}
    execution_id = stepping.start(STEP, push)
    for run in stepping.runs(execution_id):
        stepping.world.drive(run.id)
    row = stepping.drive(execution_id)
    assert (row.status, row.wait_reason, row.tainted_by) == ("waiting", "approval", ["integration:books"])
    assert stepping.world.booked() == [], "what was read outside chose the step's input, so a person looks at it"
    again = stepping.start(push)
    assert stepping.get(again).status == "succeeded", "an execution without such an agent is judged as ever"


@pytest.mark.parametrize("fails", [False, True])
def test_the_taint_of_a_child_taints_its_parent(stepping: Stepping, fails: bool) -> None:
    stepping.world.make(calls(book("look")), says("set it to 7"), rules=[{**ALLOW, "subject": {"kinds": ["agent"]}}])
    stop = {"id": "fails", "rule": {"expression": "= input.missing.deeper"}}
    child = stepping.publish(STEP, *([stop] if fails else []))
    push = {"id": "push", "integration": {"use": "books", "action": "set", "input": {"amount": 7}}}
    begin = {"id": "sub", "process": {"use": child, "input": INPUT}, "continue_on_error": True}
    parent_id = stepping.start(begin, push)
    child_id = str(wait_of(stepping, parent_id)["execution_id"])
    assert stepping.get(parent_id).tainted_by is None
    assert stepping.finish(child_id).status == ("failed" if fails else "succeeded")
    row = stepping.drive(parent_id)
    assert (row.status, row.wait_reason, row.tainted_by) == ("waiting", "approval", ["integration:books"]), row.error
    assert stepping.world.booked() == []


@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        ({"input": "Mark it."}, []),
        ({"input": {"n": "= execution.id"}}, ["process:PROCESS"]),
        ({"input": "Mark {{ execution.id }}."}, ["process:PROCESS"]),
        ({}, ["process:PROCESS"]),
        ({"input": {"n": "= execution.id"}, "trusted": True}, []),
    ],
)
def test_the_input_of_a_run_may_be_tainted(stepping: Stepping, fields: dict[str, Any], sources: list[str]) -> None:
    stepping.world.make(says("done"))
    execution_id = stepping.start({"id": "ask", "agent": {"use": "clerk", **fields}})
    row = stepping.finish(execution_id)
    expected = [each.replace("PROCESS", row.process_id) for each in sources]
    assert [run.tainted_by for run in stepping.runs(execution_id)] == [expected]
    assert list(row.tainted_by or []) == expected


def test_an_agent_after_a_tainted_one_starts_tainted(stepping: Stepping) -> None:
    stepping.world.make(calls(book("look")), says("done"))
    execution_id = stepping.start(STEP, {"id": "second", "agent": {"use": "clerk", "input": "Go on."}})
    (first,) = stepping.runs(execution_id)
    stepping.world.drive(first.id)
    stepping.drive(execution_id)
    assert [run.tainted_by for run in stepping.runs(execution_id)] == [["integration:books"]] * 2


def test_a_retry_keeps_the_taint_of_the_outputs_it_reuses(stepping: Stepping) -> None:
    stepping.world.make(calls(book("look")), says("done"))
    stop = {"id": "fails", "agent": {"use": "clerk", "input": "= input.missing"}}
    execution_id = stepping.start(STEP, stop)
    assert stepping.finish(execution_id).status == "failed"
    again = stepping.flow.retry_execution(stepping.world.scope, execution_id)
    assert stepping.get(again.id).tainted_by == ["integration:books"]


def test_a_replay_reuses_the_recorded_answer(stepping: Stepping) -> None:

    stepping.world.make(says("high"))
    execution_id = stepping.start(output="= steps.triage")
    stepping.finish(execution_id)
    replay = stepping.flow.replay_execution(stepping.world.scope, execution_id, ReplayRequest())
    assert replay.is_identical
    assert replay.replayed_output == "high"
    assert len(stepping.runs(execution_id)) == 1


def test_publishing_refuses_an_unknown_agent(stepping: Stepping) -> None:
    stepping.world.make(says("done"))
    stepping.save("p", {"id": "first", "rule": {"expression": "= input.order"}}, {"id": "a", "agent": {"use": "nobody"}})
    with pytest.raises(DefinitionInvalid) as refused:
        stepping.flow.publish_process(stepping.world.scope, "p", PublishRequest())
    assert [(each.pointer, each.code) for each in refused.value.details] == [("/steps/1/agent/use", "agent_unknown")]


@pytest.mark.parametrize(
    ("agent", "pointer"),
    [
        ({}, "/steps/0/agent/use"), ({"use": "clerk", "input": 7}, "/steps/0/agent/input"),
        ({"use": "clerk", "timeout": "soon"}, "/steps/0/agent/timeout"), ({"use": "clerk", "model": "x"}, "/steps/0/agent/model"),
        ({"use": "No Slug"}, "/steps/0/agent/use"),
    ],
)  # fmt: skip
def test_problems_of_the_step_are_reported_with_pointers(stepping: Stepping, agent: Any, pointer: str) -> None:
    stepping.save("p", {"id": "a", "agent": agent})
    with pytest.raises(DefinitionInvalid) as refused:
        stepping.flow.publish_process(stepping.world.scope, "p", PublishRequest())
    assert refused.value.details[0].pointer == pointer


def test_an_input_that_is_neither_text_nor_object_fails_the_step(stepping: Stepping) -> None:
    stepping.world.make(says("done"))
    execution_id = stepping.start({"id": "a", "agent": {"use": "clerk", "input": "= input.order"}}, data={"order": 7})
    row = stepping.get(execution_id)
    assert (row.status, row.failure_class, stepping.runs(execution_id)) == ("failed", "validation", [])
