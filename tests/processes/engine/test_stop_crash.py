"""After a crash at any write of an execution that stops early it ends the same."""

import pytest

from appliance.processes.engine import store
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from tests.processes.world import World, rule

from .test_parallel import LONG, mark


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_of_a_stop_among_branches_ends_the_same(idle_world: World, when: When) -> None:
    world = idle_world
    left = [mark("one"), rule("two", "= 2"), {"id": "enough", "stop": {"output": "= steps.two"}}]
    process = world.publish([{"id": "both", "parallel": {"left": left, "right": [LONG]}}, mark("last")])
    for number in range(1, MOST_WRITES):
        world.wipe()
        execution = world.start(process, soon=False)
        cut = False
        try:
            with power_cut(number, when):
                world.runner.drive("acme", execution)
        except PowerCut:
            cut = True
        while world.get(execution).status not in store.FINISHED:
            world.lose_worker(execution)
            world.runner.drive("acme", execution)
        assert (world.get(execution).output, world.marks()) == (2, [("one", None)]), number
        if not cut:
            break
    assert 5 < number < MOST_WRITES
