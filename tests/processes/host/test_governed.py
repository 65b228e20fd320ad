"""Actions that require approval: the execution waits and performs exactly the approved action, once."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core.database import db
from appliance.processes.engine import store
from appliance.processes.host.host_calls import MAX_REAPPROVALS
from tests.governance.ruling import put_rules
from tests.processes.deciding import ASK, active_rules, list_approvals, vote
from tests.processes.world import Bell, World, code, wait_until

RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": "= input.n", "at": "= Date.now()"}}}
PROGRAM = """
const before = Math.random();
await api.datapool.create('marks', {what: 'before', note: String(before)});
const [one, two] = await Promise.all([
  api.integrations.execute('bell', 'ring', {n: 1, before}), api.integrations.execute('bell', 'ring', {n: 2}),
]);
await api.datapool.create('marks', {what: 'after', note: String(one.rung.before === before)});
return {before, rung: [one.rung.n, two.rung.n]};
"""
CAUGHT = """
try { return await api.integrations.execute('bell', 'ring', {n: 1}); } catch (error) { return {code: error.code}; }
"""


@pytest.fixture
def asking_world(world: World) -> Iterator[World]:
    with active_rules(world, ASK):
        yield world


def waiting(world: World, execution: str, count: int = 1) -> list[str]:
    """The requests the execution waits for, once there are `count` of them."""

    def result() -> list[str]:
        row = world.get(execution)
        assert row.status not in store.FINISHED, row.error
        pending = [each.id for each in list_approvals(world, execution) if each.status == "pending"]
        return pending if row.status == "waiting" and len(pending) >= count else []

    ids: list[str] = wait_until(result, 30)
    return ids


def rung() -> list[Any]:
    return [payload["n"] for _, payload in Bell.rung]


# Steps


def test_a_step_waits_and_does_what_was_approved(asking_world: World) -> None:
    execution = asking_world.start(asking_world.publish([RING]), {"n": 5})
    [request] = waiting(asking_world, execution)
    row = asking_world.get(execution)
    assert (row.wait_reason, Bell.rung) == ("approval", [])
    [wait] = row.waiting_for["waits"] if row.waiting_for else []
    assert (wait["approval_id"], wait["step"]) == (request, "ring")
    [approval] = list_approvals(asking_world, execution)
    assert approval.about.summary.startswith("ring of bell (bell 1.0), which writes")
    vote(asking_world, request)
    done = asking_world.finish(execution)
    assert done.status == "succeeded", done.error
    [(key, payload)] = Bell.rung
    assert (key, payload["n"], f"at = {payload['at']}" in approval.about.summary) == (f"{execution}.ring", 5, True)
    assert [each.status for each in list_approvals(asking_world, execution)] == ["used"]


def test_an_unapproved_action_fails_the_step_with_a_reason(asking_world: World) -> None:
    process = asking_world.publish([RING])
    execution = asking_world.start(process, {"n": 5})
    vote(asking_world, waiting(asking_world, execution)[0], "reject")
    row = asking_world.finish(execution)
    assert row.error is not None
    assert (row.status, row.error["code"], row.error["failure_class"]) == ("failed", "approval_rejected", "policy")
    assert "eve@acme.test" in row.error["message"]
    expired = asking_world.start(process, {"n": 6})
    waiting(asking_world, expired)
    db.write(lambda: let_time_pass(expired))
    asking_world.flow.runner.drive("acme", expired)
    row = asking_world.finish(expired)
    assert row.error is not None
    assert (row.status, row.error["code"]) == ("failed", "approval_expired")
    assert [each.status for each in list_approvals(asking_world, expired)] == ["expired"]
    assert Bell.rung == []


def test_a_retried_step_does_not_ask_again(asking_world: World) -> None:
    retry = [{"max_attempts": 3, "initial": "1ms", "classes": ["connector"]}]
    step = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": 1, "fail": 1}}, "retry": retry}
    execution = asking_world.start(asking_world.publish([step]))
    vote(asking_world, waiting(asking_world, execution)[0])
    row = asking_world.finish(execution)
    assert row.status == "succeeded", row.error
    assert (rung(), len(list_approvals(asking_world, execution)), asking_world.steps(execution)["ring"].attempt) == ([1, 1], 1, 2)


def other_rules(world: World, number: int = 0) -> None:
    put_rules(world.scope, {**ASK, "reason": f"not like that {number}"})


@pytest.mark.parametrize("step", [RING, code("a", "return await api.integrations.execute('bell', 'ring', {n: input.n});")])
def test_other_rules_in_the_meantime_have_it_asked_again_once_for_each_change(asking_world: World, step: Any) -> None:
    execution = asking_world.start(asking_world.publish([step]), {"n": 5})
    [first] = waiting(asking_world, execution)
    other_rules(asking_world)
    vote(asking_world, first)
    [second] = wait_until(lambda: [each for each in waiting(asking_world, execution) if each != first], 30)
    assert Bell.rung == []
    vote(asking_world, second)
    row = asking_world.finish(execution)
    assert (row.status, rung()) == ("succeeded", [5]), row.error
    assert {each.id: each.status for each in list_approvals(asking_world, execution)} == {first: "cancelled", second: "used"}
    result = db.rows("SELECT fields FROM audit_entry WHERE subject = ? AND action = 'approval.cancel'", (first,))
    assert ["policies_changed" in fields for (fields,) in result] == [True]


def test_rules_that_allow_it_in_the_meantime_are_enough(asking_world: World) -> None:
    execution = asking_world.start(asking_world.publish([RING]), {"n": 5})
    [first] = waiting(asking_world, execution)
    put_rules(asking_world.scope, {**ASK, "effect": "allow", "obligations": None} | {"reason": "go on"})
    vote(asking_world, first)
    assert (asking_world.finish(execution).status, rung()) == ("succeeded", [5])
    assert [each.status for each in list_approvals(asking_world, execution)] == ["cancelled"]


def test_rules_that_never_settle_end_the_step(asking_world: World) -> None:
    execution = asking_world.start(asking_world.publish([RING]), {"n": 5})
    done: set[str] = set()
    for number in range(MAX_REAPPROVALS + 1):
        [request] = wait_until(lambda: [each for each in waiting(asking_world, execution) if each not in done], 30)
        done.add(request)
        other_rules(asking_world, number)
        vote(asking_world, request)
    row = asking_world.finish(execution)
    assert row.error is not None
    assert (row.status, row.error["code"], Bell.rung) == ("failed", "policy_denied", [])
    assert "once they no longer change" in row.error["message"]


def test_a_denied_action_asks_nobody(world: World) -> None:
    with active_rules(world, {**ASK, "effect": "deny"}):
        row = world.run([RING], {"n": 5})
    assert row.error is not None
    assert (row.error["code"], row.error["failure_class"]) == ("policy_denied", "policy")
    assert (list_approvals(world, row.id), Bell.rung) == ([], [])


# Step code


def test_code_sleeps_until_its_actions_are_approved(asking_world: World) -> None:
    execution = asking_world.start(asking_world.publish([code("a", PROGRAM)]))
    first, second = waiting(asking_world, execution, 2)
    vote(asking_world, second)
    wait_until(lambda: len(Bell.rung) == 1, 30)
    vote(asking_world, first)
    row = asking_world.finish(execution)
    assert row.status == "succeeded", row.error
    assert (row.output["rung"], sorted(rung())) == ([1, 2], [1, 2])
    assert asking_world.marks() == [("before", str(row.output["before"])), ("after", "true")]
    assert [each.status for each in list_approvals(asking_world, execution)] == ["used", "used"]


@pytest.mark.parametrize(("verdict", "error_code"), [("reject", "approval_rejected"), (None, "approval_expired")])
def test_code_can_catch_a_missing_approval(asking_world: World, verdict: Any, error_code: str) -> None:
    execution = asking_world.start(asking_world.publish([code("a", CAUGHT)]))
    [request] = waiting(asking_world, execution)
    if verdict:
        vote(asking_world, request, verdict)
    else:
        db.write(lambda: let_time_pass(execution))
        asking_world.flow.runner.drive("acme", execution)
    row = asking_world.finish(execution)
    assert (row.status, row.output["code"], Bell.rung) == ("succeeded", error_code, [])


def test_php_cannot_wait_and_says_so(asking_world: World) -> None:
    source = """return function (array $input, $api) {
        try { return $api->integrations->execute('bell', 'ring', ['n' => 1]); }
        catch (\\Throwable $error) { return ['told' => $error->getMessage()]; }
    };"""
    step = {"id": "a", "code": {"language": "php", "source": source}}
    row = asking_world.run([step])
    assert row.status == "succeeded", row.error
    assert "needs an approval" in row.output["told"]
    assert (list_approvals(asking_world, row.id), Bell.rung) == ([], [])


def let_time_pass(execution: str) -> None:
    db.execute("UPDATE approval SET expires_at = 1 WHERE execution_id = ?", (execution,))
    db.execute("UPDATE pending_call SET due_at = 0 WHERE execution_id = ?", (execution,))
    db.execute("UPDATE step_run SET next_run_at = 0 WHERE execution_id = ? AND status = 'waiting'", (execution,))
    db.execute("UPDATE execution SET next_run_at = 0 WHERE id = ? AND status = 'waiting'", (execution,))
