"""After a crash at any write of a failing execution everything is undone once, and one handler is started."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.processes.engine import store
from appliance.processes.executions.service import ExecutionFilter, list_executions
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from tests.processes.world import World, rule, wait_until

from .test_undo import GATE, done, mark


def drive(world: World, execution: str) -> None:
    for _ in range(30):
        if world.get(execution).status in store.FINISHED:
            return
        wait_until(lambda: (world.get(execution).next_run_at or 0) <= clock.now_ms())
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
    raise AssertionError(world.get(execution).status)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_undoes_everything_once(idle_world: World, when: When) -> None:
    world = idle_world
    handler = world.publish([rule("seen", "= 1")])
    pausing = {**rule("two", "= 2"), "undo": [{"id": "rest", "wait": {"for": "2ms"}}, {"id": "gone", **mark("two is gone")}]}
    on_failure = {"steps": [{"id": "note", **mark("noted")}], "process": handler}
    process = world.publish([done("one"), pausing, GATE], on_failure=on_failure)
    for number in range(1, MOST_WRITES):
        world.wipe()
        execution = world.start(process, {}, soon=False)
        was_cut = False
        try:
            with power_cut(number, when):
                drive(world, execution)
        except PowerCut:
            was_cut = True
        drive(world, execution)
        row = world.get(execution)
        assert (row.status, row.error["step"]) == ("failed", "gate"), (number, row.error)
        assert [what for what, _ in world.marks()] == ["two is gone", "no one", "noted"], number
        assert [place["path"] for place in row.aftermath["undone"]] == ["two", "one"], number
        items = list_executions(world.scope, ExecutionFilter(process_id=handler), PageRequest(limit=500)).items
        assert len([each for each in items if each.handles == execution]) == 1, number
        if not was_cut:
            break
    assert 8 < number < MOST_WRITES


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_of_a_cancelled_execution_undoes_it_once(idle_world: World, when: When) -> None:
    world = idle_world
    process = world.publish([done("one"), {"id": "event", "wait": {"event": "never"}}])
    for number in range(1, MOST_WRITES):
        world.wipe()
        execution = world.start(process, {}, soon=False)
        world.runner.drive("acme", execution)
        assert world.get(execution).status == "waiting"
        was_cut = False
        try:
            with power_cut(number, when):
                world.flow.cancel_execution(world.scope, execution)
                drive(world, execution)
        except PowerCut:
            was_cut = True
        if world.get(execution).status == "waiting":
            world.flow.cancel_execution(world.scope, execution)
        drive(world, execution)
        assert (world.get(execution).status, world.marks()) == ("cancelled", [("no one", "cancelled")]), number
        if not was_cut:
            break
    assert 3 < number < MOST_WRITES


def test_an_execution_that_poisons_its_worker_is_undone_all_the_same(idle_world: World) -> None:
    world = idle_world
    execution = world.start(world.publish([done("one"), {"id": "rest", "wait": {"for": "1h"}}]), soon=False)
    world.runner.drive("acme", execution)
    most = world.config.queue.max_claims
    db.write(lambda: db.execute("UPDATE execution SET next_run_at = 0, claims = ? WHERE id = ?", (most, execution)))
    world.runner.drive("acme", execution)
    row = world.get(execution)
    assert (row.status, row.error["code"]) == ("failed", "poisoned")
    assert world.marks() == [("no one", "poisoned")]
