"""The wall clock jumps two hours: nothing happens early, nothing twice, and nothing is lost."""

from collections import Counter

import pytest

from appliance.core import clock
from tests.processes.world import Bell, Wall, World, code, wait_until

HOUR = 3_600_000
WAITS = {
    "step": {"id": "pause", "wait": {"for": "1h"}},
    "event": {"id": "pause", "wait": {"event": "never", "timeout": "1h"}},
    "code": code("pause", 'await Promise.all([api.wait.for("1h"), api.wait.for("59m"), api.wait.until(input.later)])'),
    "retry": {
        "id": "pause", "integration": {"use": "bell", "action": "ring", "input": {"fail": 1}},
        "retry": [{"classes": ["connector"], "max_attempts": 2, "initial": "1h", "max": "1h", "jitter": False}],
    },
}  # fmt: skip
RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {}}}
HOLD = {"id": "ring", "integration": {"use": "bell", "action": "hold", "input": {}}}


def sweep(world: World) -> None:
    """Rounds of the sweeper, by this thread as well as by its own."""
    for _ in range(3):
        world.flow._sweeper.sweep()


def test_after_a_clock_jump_nothing_runs_early_or_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(monkeypatch)
    busy = world.start(world.publish([HOLD]))
    assert Bell.arrived.acquire(timeout=10)
    waits = world.start(world.publish([{"id": "pause", "wait": {"for": "1h"}}, RING]))
    world.wait_for_status(waits, "waiting")
    due = world.start(world.publish([RING]), run_at=clock.now_ms() + HOUR)
    late = world.start(world.publish([RING]), run_at=clock.now_ms() + 24 * HOUR, expires_ms=HOUR)
    wall.jumped = -2 * HOUR
    sweep(world)
    assert [world.get(each).status for each in (busy, waits, due, late)] == ["running", "waiting", "scheduled", "scheduled"]
    assert len(Bell.rung) == 1
    new = world.start(world.publish([RING]))
    assert world.finish(new).status == "succeeded", "what is asked for now runs now, whatever the clock says"
    wall.jumped = 2 * HOUR
    assert world.finish(due).status == "succeeded"
    sweep(world)
    assert world.get(busy).fence == 1, "a lease that is over by a jump takes nothing from a worker that lives"
    for jumped in (0, -2 * HOUR, 0):
        wall.jumped = jumped
        sweep(world)
    assert world.get(waits).status == "waiting"
    wall.offset = HOUR
    assert world.finish(waits).status == "succeeded"
    Bell.go_on.set()
    assert world.finish(busy).status == "succeeded"
    assert world.get(late).status == "scheduled"
    assert set(Counter(key for key, _ in Bell.rung).values()) == {1}
    assert len(Bell.rung) == 4
    world.flow.cancel_execution(world.scope, late)


def test_a_worker_that_lives_keeps_its_work_when_the_clock_jumps(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process sees an expired lease of a living owner whose next heartbeat is still to come."""
    world = idle_world
    execution = world.start(world.publish([RING]), soon=False)
    with monkeypatch.context() as other:
        other.setattr(world.presence, "instance", "wrk_other")
        assert world.runner.claim("acme", execution) is not None
    monkeypatch.setattr(world.runner.orphans, "_is_alive", lambda owner: True)
    wall = Wall(monkeypatch)
    wall.jumped = 2 * HOUR
    assert world.runner.claim("acme", execution) is None, "also for who hears of it a second time"
    sweep(world)
    assert world.get(execution).status == "running"
    monkeypatch.setattr(world.runner.orphans, "silent_seconds", 0.0)
    wall.offset = HOUR
    wait_until(lambda: world.flow._sweeper.sweep() or world.get(execution).status != "running")
    assert world.get(execution).status == "queued", "silent for long, it is taken from it"
    wall.jumped = 0
    sweep(world)  # nobody else does it for a flow that was never started


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR])
@pytest.mark.parametrize("kind", WAITS)
def test_a_duration_keeps_its_length(world: World, monkeypatch: pytest.MonkeyPatch, kind: str, jump: int) -> None:
    wall = Wall(monkeypatch)
    execution = world.start(world.publish([WAITS[kind]]), {"later": clock.rfc3339(clock.now_ms() + 3 * HOUR + 60_000)})
    world.wait_for_status(execution, "waiting")
    wall.jumped = jump
    sweep(world)
    row = world.get(execution)
    assert row.status == "waiting"
    assert abs(row.next_run_at - clock.now_ms() - HOUR) < 120_000
    wait = row.waiting_for
    soonest = min((each["until"] for each in wait.get("waits", ())), default=wait["until"])
    assert {wait["until"], soonest} == {clock.rfc3339(row.next_run_at)}
    wall.offset = HOUR if kind != "code" else 6 * HOUR  # its point in time comes last
    end = world.finish(execution)
    assert end.status == ("failed" if kind == "event" else "succeeded"), end.error


def test_a_point_in_time_follows_the_wall_clock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wall, at = Wall(monkeypatch), clock.now_ms() + HOUR
    steps = [{"id": "pause", "wait": {"until": clock.rfc3339(at)}}], [code("pause", f'await api.wait.until("{clock.rfc3339(at)}")')]
    waiting = [world.start(world.publish(each)) for each in steps]
    for each in waiting:
        world.wait_for_status(each, "waiting")
    wall.jumped = -2 * HOUR
    sweep(world)
    assert [(world.get(each).status, world.get(each).next_run_at) for each in waiting] == [("waiting", at), ("waiting", at)]
    wall.jumped = 2 * HOUR
    assert [world.finish(each).status for each in waiting] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR])
def test_a_wait_beside_work_keeps_its_length(world: World, monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    """The runner of the execution holds the wait in memory."""
    wall = Wall(monkeypatch)
    both = {"id": "both", "parallel": {"one": [WAITS["step"], RING | {"id": "after"}], "two": [HOLD]}}
    execution = world.start(world.publish([both]))
    assert Bell.arrived.acquire(timeout=10)
    wait_until(lambda: "pause" in (steps := world.steps(execution)) and steps["pause"].status == "waiting")
    wall.jumped = jump
    sweep(world)
    Bell.go_on.set()
    row = world.wait_for_status(execution, "waiting")
    assert abs(row.next_run_at - clock.now_ms() - HOUR) < 60_000
    assert len(Bell.rung) == 1
    wall.offset = HOUR
    assert world.finish(execution).status == "succeeded"
    assert len(Bell.rung) == 2
