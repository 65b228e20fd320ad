"""A paused process: what has begun goes on, what has not is held back, and what is executed meanwhile waits and says so."""

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.executions.pausing import is_paused
from appliance.processes.models import Process
from tests.processes.world import Bell, World, rule, wait_until


def paused_at(world: World, process: str) -> int | None:
    value: int | None = world.scope.get(Process, id=process).paused_at
    return value


def test_executions_started_while_paused_wait_until_the_process_resumes(world: World) -> None:
    process = world.publish([rule("one", "= 7")])
    world.flow.pause_process(world.scope, process)
    for soon in (True, False):
        execution = world.get(world.start(process, soon=soon))
        assert (execution.status, execution.wait_reason) == ("queued", "paused")
    other = world.publish([rule("one", "= 8")])
    assert world.finish(world.start(other)).output == 8, "another process is not held back"
    assert world.get(execution.id).status == "queued"
    world.flow.resume_process(world.scope, process)
    assert world.finish(execution.id).output == 7


def test_started_executions_continue_and_queued_ones_are_held_back(world: World) -> None:
    ring = {"id": "ring", "integration": {"use": "bell", "action": "hold", "input": {}}}
    process = world.publish([ring, {"id": "pause", "wait": {"for": "20ms"}}, rule("last", "= 1")])
    open_run = world.start(process)
    assert Bell.arrived.acquire(timeout=10)
    later = world.start(process, run_at=clock.now_ms() + 3_600_000)
    world.flow.pause_process(world.scope, process)
    db.write(lambda: db.execute("UPDATE execution SET next_run_at = ? WHERE id = ?", (clock.now_ms(), later)))
    Bell.go_on.set()
    assert world.finish(open_run).output == 1
    wait_until(lambda: world.get(later).status == "queued")
    assert world.get(later).wait_reason == "paused"
    world.flow.resume_process(world.scope, process)
    assert world.finish(later).output == 1


def test_pausing_twice_keeps_the_first_time_and_another_tenant_is_not_touched(world: World) -> None:
    process = world.publish([rule("one", "= 7")])
    first = world.flow.pause_process(world.scope, process).paused_at
    db.write(lambda: db.execute("UPDATE process SET paused_at = paused_at - 5000 WHERE id = ?", (process,)))
    assert world.flow.pause_process(world.scope, process).paused_at == first - 5000
    assert is_paused(world.scope, process)
    assert not is_paused(world.other, process)
    assert world.flow.resume_process(world.scope, process).paused_at is None
    assert paused_at(world, process) is None
    assert world.flow.resume_process(world.scope, process).paused_at is None
