"""What is running when a tenant is closed or its reset begins: its step may come back from a foreign system, and that was all."""

import pytest

from appliance.core.database import db
from tests.processes.world import Bell, World, code, wait_until
from tests.tenants.fencing import KINDS, fenced


@pytest.mark.parametrize("how", KINDS)
def test_a_running_step_writes_nothing_any_more_and_none_follows(world: World, how: str) -> None:
    """It is in a call of a foreign system when the tenant is closed; the call comes back, and that was all."""
    process = world.publish([
        code("ring", "await api.integrations.execute('bell', 'hold', {}); await api.datapool.create('marks', {what: 'late'});"),
        code("next", "await api.integrations.execute('bell', 'ring', {});"),
    ])  # fmt: skip
    execution = world.start(process)
    assert Bell.arrived.acquire(timeout=20)
    with fenced(world.scope, how):
        assert world.get(execution).status == "cancelled"
        Bell.go_on.set()
        wait_until(lambda: execution not in world.runner.active)
        assert (world.get(execution).status, world.steps(execution), world.marks(), len(Bell.rung)) == ("cancelled", {}, [], 1)
        journal = db.rows("SELECT count(*) FROM journal WHERE execution_id = ? AND ok = 1 AND answer IS NOT NULL", (execution,))
        assert journal == [(0,)], "not even the answer of the call"
