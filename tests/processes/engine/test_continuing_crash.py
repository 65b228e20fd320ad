"""After a crash at any write of an execution that goes on behind failures it ends the same."""

import pytest

from appliance.core import clock
from appliance.processes.engine import store
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from tests.processes.world import World, rule, wait_until

from .test_continuing import boom, each


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_among_failures_that_are_passed_over_ends_the_same(idle_world: World, when: When) -> None:
    world = idle_world
    mark = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "= String(line)"}}}}
    inner = {"a": [boom("step", "input === 2")], "b": [{"id": "rest", "wait": {"for": "3ms"}}, mark]}
    process = world.publish([each([{"id": "both", "parallel": inner}], on_error="collect"), rule("n", "= errors.each.length")])
    for number in range(1, MOST_WRITES):
        world.wipe()
        execution = world.start(process, {"lines": [1, 2]}, soon=False)
        cut = False
        try:
            with power_cut(number, when):
                _drive(world, execution)
        except PowerCut:
            cut = True
        _drive(world, execution)
        row = world.get(execution)
        assert (row.status, row.output) == ("succeeded", 1), (number, row.error)
        assert ("1", None) in world.marks()
        assert not [run for run in store.load_runs(world.scope, execution) if run.finished_at is None]
        if not cut:
            break
    assert 8 < number < MOST_WRITES


def _drive(world: World, execution: str) -> None:
    for _ in range(30):
        if world.get(execution).status in store.FINISHED:
            return
        wait_until(lambda: (world.get(execution).next_run_at or 0) <= clock.now_ms())
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
    raise AssertionError(world.get(execution).status)
