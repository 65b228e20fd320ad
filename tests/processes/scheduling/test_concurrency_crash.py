"""Slots without running workers: every end passes its slot on, and a crash loses none."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.executions.service import Execution
from tests.processes.scheduling.test_concurrency import limited, states
from tests.processes.world import World, rule


@pytest.mark.parametrize("end", ["cancel", "expire", "delete"])
def test_every_end_of_an_execution_frees_its_slot(idle_world: World, end: str) -> None:
    """Nothing runs here: the slot of one that was queued first goes to the next."""
    world = idle_world
    process = limited(world)
    first, second = (world.start(process, {"n": n}, soon=False, expires_ms=60_000) for n in (1, 2))
    assert states(world, first, second) == ["queued", "queued/slot"]
    if end == "cancel":
        world.flow.cancel_execution(world.scope, first)
    elif end == "expire":
        change = {"expires_at": clock.now_ms() - 1}
        db.write(lambda: world.scope.update(Execution, **change).where(Execution.id == first).execute())
        world.flow._sweeper.sweep()
    else:
        world.flow.delete_process(world.scope, process, force=True)
        assert db.rows("SELECT 1 FROM execution WHERE process_id = ?", (process,)) == []
        return
    assert states(world, second) == ["queued"]
    world.flow.cancel_execution(world.scope, second)


def test_a_crash_loses_no_slot(idle_world: World) -> None:
    world = idle_world
    process = limited(world, [rule("one", "= 1")])
    first, second = (world.start(process, {"n": n}, soon=False) for n in (1, 2))
    assert world.runner.claim("acme", first) is not None
    world.lose_worker(first)
    assert states(world, first, second) == ["running", "queued/slot"]
    world.flow._sweeper.sweep()
    assert states(world, first, second) == ["queued", "queued/slot"], "it is to go on, and keeps its slot"
    world.runner.drive("acme", first)
    assert states(world, first, second) == ["succeeded", "queued"]
    world.runner.drive("acme", second)
    assert states(world, second) == ["succeeded"]
