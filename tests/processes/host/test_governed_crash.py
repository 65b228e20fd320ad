"""A crash at any write of a step that must be approved: it is asked, and done, once.

In a file of its own: the crashes hit every write of the process, also those of a flow that runs in it.
"""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.engine import store
from tests.processes.deciding import ASK, active_rules, list_approvals, vote
from tests.processes.world import Bell, World, code, wait_until

from .test_governed import PROGRAM, RING
from .test_journal import MOST_WRITES, PowerCut, When, power_cut


def finish(world: World, execution: str) -> None:
    """Drives the execution as other workers would, approving every request, until it has finished."""
    for _ in range(40):
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
        row = world.get(execution)
        if row.status in store.FINISHED:
            return
        for wait in (row.waiting_for or {}).get("waits", []):
            vote(world, wait["approval_id"])
        wait_until(lambda: (world.get(execution).next_run_at or 0) <= clock.now_ms())
    raise AssertionError(world.get(execution).status)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["step", "code"])
def test_after_a_crash_at_any_write_it_is_asked_and_done_once(idle_world: World, kind: str, when: When) -> None:
    world = idle_world
    with active_rules(world, ASK):
        process = world.publish([RING] if kind == "step" else [code("a", PROGRAM)])
        for number in range(1, MOST_WRITES):
            world.wipe()
            Bell.forget()
            execution, cut = world.start(process, {"n": 1}, soon=False), False
            try:
                with power_cut(number, when):
                    finish(world, execution)
            except PowerCut:
                cut = True
                finish(world, execution)
            row = world.get(execution)
            assert row.status == "succeeded", (number, row.error)
            expected = [1] if kind == "step" else [1, 2]
            # An action that is safe to repeat may be sent again under its key; it is the same one.
            assert len({key for key, _ in Bell.rung}) == len(expected), number
            assert sorted({payload["n"] for _, payload in Bell.rung}) == expected, number
            assert len({db.dump_json(payload) for _, payload in Bell.rung}) == len(expected), number
            assert [each.status for each in list_approvals(world, execution)] == ["used"] * len(expected), number
            calls = db.rows("SELECT status, approval_id FROM integration_call WHERE execution_id = ?", (execution,))
            assert [each[0] for each in calls] == ["succeeded"] * len(expected), number
            assert len({each[1] for each in calls}) == len(expected), number
            assert {run.attempt for run in world.steps(execution).values()} == {1}
            assert db.rows("SELECT count(*) FROM pending_call") == [(0,)]
            if not cut:
                break
    assert 5 < number < MOST_WRITES
