"""The quota of executions that a tenant runs at once: others wait in the queue, and a dead worker keeps no place."""

from collections.abc import Iterator

import pytest

from appliance.core.database import db
from appliance.processes.scheduling import concurrency_quota
from appliance.quotas import limits
from tests.processes.world import Bell, World, rule, wait_until

HOLD = {"id": "ring", "integration": {"use": "bell", "action": "hold", "input": {"n": "= input.n"}}}


def allow(world: World, amount: int) -> None:
    db.write(lambda: limits.set_own(world.scope, concurrency_quota.NAME, amount))


@pytest.fixture(autouse=True)
def unlimited_again(folder: object) -> Iterator[None]:
    yield
    Bell.go_on.set()
    db.write(lambda: db.execute("DELETE FROM tenant_quota"))
    limits._limits.clear()


def statuses(world: World, ids: list[str]) -> list[str]:
    return [world.get(each).status for each in ids]


@pytest.mark.parametrize("immediate", [True, False])
def test_those_beyond_it_wait_and_run_later(world: World, immediate: bool) -> None:
    allow(world, 2)
    process = world.publish([HOLD])
    ids = [world.start(process, {"n": number}, soon=immediate) for number in range(5)]
    for _ in range(2):
        assert Bell.arrived.acquire(timeout=10)
    assert not Bell.arrived.acquire(timeout=1.2), "a third would have been started by the sweeper as well"
    assert sorted(statuses(world, ids)) == ["queued"] * 3 + ["running"] * 2
    assert concurrency_quota.count_running(world.scope) == 2
    Bell.go_on.set()
    assert [world.finish(each).status for each in ids] == ["succeeded"] * 5


def test_another_tenant_does_not_wait_and_those_that_wait_themselves_hold_no_place(world: World) -> None:
    allow(world, 1)
    paused = world.start(world.publish([{"id": "pause", "wait": {"for": "1h"}}]))
    assert world.wait_for_status(paused, "waiting").started_at is not None
    holder = world.start(world.publish([HOLD]), {"n": 1})
    assert Bell.arrived.acquire(timeout=10)
    assert not concurrency_quota.is_full("globex")
    assert concurrency_quota.is_full("acme")
    Bell.go_on.set()
    assert world.finish(holder).status == "succeeded"
    assert world.finish(world.start(world.publish([rule("a", "= 1")]))).status == "succeeded"


def test_a_dead_worker_gives_its_place_back(idle_world: World) -> None:
    world = idle_world
    allow(world, 1)
    process = world.publish([rule("a", "= 1")])
    first, second = (world.start(process, soon=False) for _ in range(2))
    claim = world.flow.intake.claim_next()
    assert claim is not None
    assert claim.execution_id == first
    assert world.flow.intake.claim_next() is None, "the only place is taken"
    world.lose_worker(first)
    world.flow._sweeper.sweep()
    again = world.flow.intake.claim_next()
    assert again is not None, "the place of the dead worker is free again"
    world.runner.run(again)
    last = world.flow.intake.claim_next()
    assert last is not None
    world.runner.run(last)
    wait_until(lambda: statuses(world, [first, second]) == ["succeeded"] * 2)
