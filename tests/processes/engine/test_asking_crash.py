"""After a crash at any write of steps that ask, everything has been asked and started once, and every answer has counted."""

import pytest

from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.governance.approvals import approvals
from appliance.processes.engine import store
from appliance.processes.executions.service import ExecutionFilter, list_executions
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from tests.processes.world import World, rule

from .test_suspend_crash import crash_and_finish


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_leaves_everything_asked_once(idle_world: World, when: When) -> None:
    world = idle_world
    child = world.publish([rule("double", "= input.n * 2")])
    steps_by_kind = {
        "person": [{"id": "approve", "human": {"kind": "approval", "title": "Go on?"}}],
        "event": [{"id": "paid", "wait": {"event": "paid"}}, {"id": "sub", "process": {"use": child, "input": {"n": 4}}}],
    }
    values = {"what": "{{ steps.approve.status }}{{ steps.paid.sum }}:{{ steps.sub }}"}
    write = {"collection": "marks", "create": {"values": values}}
    process = world.publish([{"id": "all", "parallel": steps_by_kind}, {"id": "mark", "datapool": write}], grants={})
    for number in range(1, MOST_WRITES):
        world.wipe()
        execution = world.start(process, soon=False)
        was_cut = crash_and_finish(world, execution, number, when)
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        assert world.marks() == [("approved12:8", None)], number
        requests = approvals.list_approvals(world.scope, approvals.ApprovalFilter(execution_id=execution), PageRequest())
        assert [each.status for each in requests.items] == ["approved"], number
        children = list_executions(world.scope, ExecutionFilter(process_id=child), PageRequest(limit=500)).items
        assert [each.status for each in children if each.parent == execution] == ["succeeded"], number
        assert {run.attempt for run in world.steps(execution).values()} == {1}
        assert db.rows("SELECT count(*) FROM pending_call") == [(0,)]
        if not was_cut:
            break
    assert 10 < number < MOST_WRITES


def let_time_pass(execution: str) -> None:
    """What it waits for is over."""
    db.execute("UPDATE pending_call SET due_at = 0 WHERE execution_id = ?", (execution,))
    db.execute("UPDATE step_run SET next_run_at = 0 WHERE execution_id = ? AND status = 'waiting'", (execution,))
    db.execute("UPDATE execution SET next_run_at = 0 WHERE id = ? AND status = 'waiting'", (execution,))


def expire(world: World, execution: str, number: int, when: When) -> bool:
    """Drive it to its end while nobody decides; whether the power cut came."""

    def drive() -> None:
        while world.get(execution).status not in store.FINISHED:
            world.lose_worker(execution)
            world.runner.drive("acme", execution)
            db.write(lambda: let_time_pass(execution))

    try:
        with power_cut(number, when):
            drive()
    except PowerCut:
        drive()
        return True
    return False


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_crash_at_any_write_undecided_requests_expire_and_are_asked_again(idle_world: World, when: When) -> None:
    world = idle_world
    human = {"kind": "approval", "title": "?", "expires": "1s", "on_timeout": "fail"}
    retry = {"max_attempts": 2, "initial": "0s", "classes": ["timeout"]}
    process = world.publish([{"id": "approve", "human": human, "retry": retry}], grants={})
    for number in range(1, MOST_WRITES):
        execution = world.start(process, soon=False)
        was_cut = expire(world, execution, number, when)
        row = world.get(execution)
        assert (row.error["code"], row.error["attempt"]) == ("approval_expired", 2), number
        requests = approvals.list_approvals(world.scope, approvals.ApprovalFilter(execution_id=execution), PageRequest())
        assert [each.status for each in requests.items] == ["expired", "expired"], number
        if not was_cut:
            break
    assert 4 < number < MOST_WRITES
