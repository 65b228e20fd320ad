"""The wall clock jumps two hours: nothing happens early, nothing twice, and nothing is lost."""

from collections import Counter

import pytest

from appliance.core import clock
from tests.processes.world import Bell, Wall, World, wait_until

HOUR = 3_600_000
RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {}}}
HOLD = {"id": "ring", "integration": {"use": "bell", "action": "hold", "input": {}}}


def sweep(world: World) -> None:
    """Rounds of the sweeper, by this thread as well as by its own."""
    for _ in range(3):
        world.flow._sweeper.sweep()


def test_nothing_is_early_and_nothing_happens_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(monkeypatch)
    busy = world.start(world.publish([HOLD]))
    assert Bell.arrived.acquire(timeout=10)
    waits = world.start(world.publish([{"id": "pause", "wait": {"for": "1h"}}, RING]))
    world.wait_for_status(waits, "waiting")
    due = world.start(world.publish([RING]), run_at=clock.now_ms() + HOUR)
    late = world.start(world.publish([RING]), run_at=clock.now_ms() + 24 * HOUR, expires_ms=HOUR)
    wall.offset = -2 * HOUR
    sweep(world)
    assert [world.get(each).status for each in (busy, waits, due, late)] == ["running", "waiting", "scheduled", "scheduled"]
    assert len(Bell.rung) == 1
    new = world.start(world.publish([RING]))
    assert world.finish(new).status == "succeeded", "what is asked for now runs now, whatever the clock says"
    wall.offset = 2 * HOUR
    assert [world.finish(each).status for each in (waits, due)] == ["succeeded", "succeeded"]
    sweep(world)
    assert world.get(busy).fence == 1, "a lease that is over by a jump takes nothing from a worker that lives"
    for offset in (0, -2 * HOUR, 0):
        wall.offset = offset
        sweep(world)
    Bell.go_on.set()
    assert world.finish(busy).status == "succeeded"
    assert world.get(late).status == "scheduled"
    assert set(Counter(key for key, _ in Bell.rung).values()) == {1}
    assert len(Bell.rung) == 4
    world.flow.cancel_execution(world.scope, late)


def test_a_worker_that_lives_keeps_its_work_when_the_clock_jumps(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from another process: the lease is over at once, its owner is alive, and its next heartbeat has not come yet."""
    world = idle_world
    execution = world.start(world.publish([RING]), soon=False)
    assert world.runner.claim("acme", execution) is not None
    monkeypatch.setattr(world.flow._sweeper._presence, "instance", "wrk_other")
    monkeypatch.setattr(world.presence.__class__, "is_alive", lambda presence, owner: True)
    wall = Wall(monkeypatch)
    wall.offset = 2 * HOUR
    sweep(world)
    assert world.get(execution).status == "running"
    monkeypatch.setattr(world.flow._sweeper, "_silent_seconds", 0.0)
    wait_until(lambda: world.flow._sweeper.sweep() or world.get(execution).status != "running")
    assert world.get(execution).status == "queued", "silent for long, it is taken from it"
