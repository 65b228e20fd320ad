"""After a crash at any write a step that sleeps goes on where it was: nothing is asked, started, written or answered twice."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.governance.approvals import approvals
from appliance.processes.engine import store
from appliance.processes.executions.service import ExecutionFilter, list_executions
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from tests.processes.world import GRANTS, World, code, rule, wait_until

from .test_suspend import decide, send_event

PROGRAM = """
const began = Date.now();
const dice = Math.ceil(Math.random() * 1e9);
await api.datapool.create('marks', {what: 'before', note: `${dice}:${began}`});
const verdict = await api.human.request({kind: 'approval', title: 'Go on?'});
const between = Date.now();
await api.datapool.create('marks', {what: 'between', note: `${verdict.status}:${between}`});
const [paid, child] = await Promise.all([
  api.events.wait('paid'), api.processes.execute(input.child, {n: 4}, {wait: true}),
]);
await api.wait.for('5ms');
const rest = Math.ceil(Math.random() * 1e9);
await api.datapool.create('marks', {what: 'after', note: `${paid.sum}:${child}:${rest}`});
return {note: `${dice}:${began}`, between, rest};
"""


def finish(world: World, execution: str) -> None:
    """Drive it as other workers would, answering whatever it waits for, until it is over."""
    for _ in range(40):
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
        row = world.get(execution)
        if row.status in store.FINISHED:
            return
        for wait in (row.waiting_for or {}).get("waits", []):
            if wait["kind"] == "human":
                decide(world, wait["approval_id"])
            elif wait["kind"] == "event":
                send_event(world, execution, wait["token"], {"sum": 12})
            elif wait["kind"] == "child":
                world.lose_worker(wait["execution_id"])
                world.runner.drive("acme", wait["execution_id"])
        wait_until(lambda: (world.get(execution).next_run_at or 0) <= clock.now_ms())
    raise AssertionError(world.get(execution).status)


def crash_and_finish(world: World, execution: str, number: int, when: When) -> bool:
    """Whether the power cut came; it may come in any visit, while an answer is given too."""
    try:
        with power_cut(number, when):
            finish(world, execution)
    except PowerCut:
        finish(world, execution)
        return True
    return False


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_of_a_step_that_sleeps_leaves_everything_done_once(idle_world: World, when: When) -> None:
    world = idle_world
    child = world.publish([rule("double", "= input.n * 2")])
    process = world.publish([code("a", PROGRAM)], grants={**GRANTS, "human": True, "processes": [child]})
    for number in range(1, MOST_WRITES):
        world.wipe()
        execution = world.start(process, {"child": child}, soon=False)
        cut = crash_and_finish(world, execution, number, when)
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        marks = world.marks()
        assert dict(marks) == {
            "before": row.output["note"], "between": f"approved:{row.output['between']}", "after": f"12:8:{row.output['rest']}",
        }  # fmt: skip
        assert len(marks) == 3, number
        requests = approvals.list_approvals(world.scope, approvals.ApprovalFilter(execution_id=execution), PageRequest())
        assert [each.status for each in requests.items] == ["approved"], number
        children = list_executions(world.scope, ExecutionFilter(process_id=child), PageRequest(limit=500)).items
        assert [each.status for each in children if each.parent == execution] == ["succeeded"], number
        assert world.steps(execution)["a"].attempt == 1
        if not cut:
            break
    assert 20 < number < MOST_WRITES


def test_clock_and_random_values_of_every_visit_are_journaled(idle_world: World) -> None:
    world = idle_world
    body = """
      const seen = [Date.now()];
      const go = api.events.wait('go');
      seen.push(Date.now());
      await go;
      seen.push(Date.now());
      await api.datapool.query('marks', {});
      return seen;
    """
    execution = world.start(world.publish([code("a", body)]), soon=False)
    finish(world, execution)
    rows: list[Any] = db.rows("SELECT clock FROM journal WHERE execution_id = ? AND call > 0 ORDER BY call", (execution,))
    assert [int(value) for (text,) in rows for value in text.strip("[]").split(",")] == world.get(execution).output
