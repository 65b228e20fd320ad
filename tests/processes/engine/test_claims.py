"""Who may run an execution: claims, fences, dead workers, stops; the test drives the flow itself."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee
import pytest

from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.errors import Draining, Overloaded
from appliance.core.leases import LeaseLost
from appliance.core.scheduling import Scheduler
from appliance.processes.engine import store
from appliance.processes.executions import service as executions
from appliance.sandbox import Pool
from tests.processes.world import Bell, World, code, make_world, rule, wait_until

HOLD = {"use": "bell", "action": "hold"}
WRITE_AND_HOLD = "await api.datapool.create('marks', {what: 'a'}); return await api.integrations.execute('bell', 'hold', {})"
EVERLASTING = "for (;;) {}"


def test_a_cancel_that_arrives_just_before_the_wait_is_not_forgotten(idle_world: World) -> None:
    world = idle_world
    execution = world.start(world.publish([{"id": "a", "wait": {"for": "1h"}}]), soon=False)
    claim = world.runner.claim("acme", execution)
    assert claim is not None
    db.write(lambda: executions.cancel_rows(world.scope, execution, None))
    world.runner.run(claim)
    assert world.get(execution).status == "cancelled"


def test_the_lease_is_prolonged_under_the_fence_and_forgives_no_claims(idle_world: World) -> None:
    world = idle_world
    execution = world.start(world.publish([rule("a", "= 1")]), soon=False)
    claim = world.runner.claim("acme", execution)
    assert claim is not None
    assert db.write(lambda: store.renew_lease(claim, 4_000_000_000_000, 7)) is False
    row = world.get(execution)
    assert (row.lease_until, row.active_ms, row.claims) == (4_000_000_000_000, 7, 1)
    db.write(lambda: db.execute("UPDATE execution SET fence = fence + 1 WHERE id = ?", (execution,)))
    with pytest.raises(LeaseLost):
        db.write(lambda: store.renew_lease(claim, 1, 1))


def test_an_execution_that_never_gets_anywhere_is_given_up(idle_world: World) -> None:
    world = idle_world
    execution = world.start(world.publish([rule("a", "= 1")]), soon=False)
    for _ in range(world.config.queue.max_claims):
        assert world.runner.claim("acme", execution) is not None
        world.lose_worker(execution)
    world.runner.drive("acme", execution)
    row = world.get(execution)
    assert (row.status, row.error["code"], row.failure_class) == ("failed", "poisoned", "system")


@pytest.mark.parametrize("error", [
    Overloaded("the database server does not respond; try again in a moment"),
    peewee.OperationalError("server closed the connection unexpectedly"),
])  # fmt: skip
def test_executions_interrupted_by_a_missing_database_continue_later(idle_world: World, error: Exception) -> None:
    """A server that is restarted, has no room for a further connection, or ends one, is no failure of what was accepted."""
    world = idle_world
    execution = world.start(world.publish([rule("a", "= 1")]), soon=False)
    claim = world.runner.claim("acme", execution)
    assert claim is not None

    def go_away(event: Any) -> None:
        if "draft_digest" in event.sql:
            raise error

    hooks = db.database.obj.query_hooks
    hooks.append(go_away)
    try:
        worker = threading.Thread(target=world.runner.run, args=(claim,))
        worker.start()
        worker.join(20)
    finally:
        hooks.remove(go_away)
    assert (world.get(execution).status, world.runner.active) == ("running", {})
    world.lose_worker(execution)
    world.runner.drive("acme", execution)
    assert world.get(execution).status == "succeeded"


def test_a_worker_that_lost_its_claim_writes_nothing(idle_world: World) -> None:
    world = idle_world
    execution = world.start(world.publish([code("a", "await api.datapool.create('marks', {what: 'x'})")]), soon=False)
    old = world.runner.claim("acme", execution)
    assert old is not None
    world.lose_worker(execution)
    world.runner.drive("acme", execution)
    assert world.get(execution).status == "succeeded"
    world.runner.run(old)
    assert world.get(execution).status == "succeeded"
    assert len(world.marks()) == 1


def test_a_worker_that_loses_its_claim_in_the_middle_of_a_step_writes_no_more(idle_world: World) -> None:
    world = idle_world
    body = """
      await api.datapool.create('marks', {what: 'a'});
      await api.integrations.execute('bell', 'hold', {});
      await api.datapool.create('marks', {what: 'b'});
      await api.datapool.create('marks', {what: 'c'});
    """
    execution = world.start(world.publish([code("a", body)]), soon=False)
    old = world.runner.claim("acme", execution)
    assert old is not None
    slow = threading.Thread(target=world.runner.run, args=(old,))
    slow.start()
    assert Bell.arrived.acquire(timeout=10)
    world.lose_worker(execution)
    new = world.runner.claim("acme", execution)
    assert new is not None
    assert new.fence == old.fence + 1
    Bell.go_on.set()
    slow.join()
    assert [what for what, _ in world.marks()] == ["a"], "the old one stopped where it lost its claim"
    world.runner.run(new)
    assert world.get(execution).status == "succeeded"
    assert [what for what, _ in world.marks()] == ["a", "b", "c"]


def test_messages_that_come_twice_or_for_nothing_are_harmless(idle_world: World) -> None:
    world = idle_world
    execution = world.start(
        world.publish([{"id": "w", "datapool": {"collection": "marks", "create": {"values": {"what": "x"}}}}]), soon=False
    )
    for _ in range(3):
        world.runner.drive("acme", execution)
    world.runner.drive("acme", "exe_unknown")
    world.runner.drive("globex", execution)
    assert len(world.marks()) == 1


def test_a_stop_ends_at_a_commit_and_the_next_start_resumes(folder: Path, sandbox: Pool) -> None:
    Bell.forget()
    world = make_world(folder, sandbox)
    world.wipe()
    world.flow.start(Scheduler(read_state))
    mark = {"datapool": {"collection": "marks", "create": {"values": {"what": "= item"}}}}
    each = {"id": "each", "for_each": {"items": [str(n) for n in range(400)], "concurrency": 2, "steps": [{"id": "m", **mark}]}}
    process = world.publish([each])
    execution = world.start(process)
    wait_until(lambda: len(world.marks()) > 10)
    world.flow.stop(0.2)
    world.presence.close()
    assert world.get(execution).status == "running"
    with pytest.raises(Draining):
        world.start(process)
    written = len(world.marks())
    assert written < 400
    after = make_world(folder, sandbox)
    after.flow.start(Scheduler(read_state))
    done = after.finish(execution)
    assert done.status == "succeeded"
    assert sorted(what for what, _ in after.marks()) == sorted(str(n) for n in range(400))
    after.flow.stop(5)
    after.presence.close()


def test_higher_priorities_run_first(idle_world: World) -> None:
    world = idle_world
    process = world.publish([{"id": "w", "datapool": {"collection": "marks", "create": {"values": {"what": "= input.n"}}}}])
    db.write(lambda: db.execute("DELETE FROM task"))
    for number, priority in (("low", -5), ("a", 0), ("high", 10), ("b", 0)):
        execution = world.start(process, {"n": number}, soon=False, priority=priority)
    place = executions.find_queue_place(world.get(execution))
    assert place is not None
    assert place.ahead == 2
    world.runner.start(Scheduler(read_state))
    world.flow.queue.start(1, Scheduler(read_state))
    wait_until(lambda: len(world.marks()) == 4)
    assert [what for what, _ in world.marks()] == ["high", "a", "b", "low"]
    world.flow.queue.stop(5)


@pytest.fixture
def two_steps(folder: Path, sandbox: Pool) -> Iterator[World]:
    """A flow that allows ten step runs per execution."""
    world = make_world(folder, sandbox, limits__execution_steps=10)
    world.flow.start(Scheduler(read_state))
    yield world
    world.flow.stop(5)
    world.presence.close()


def test_an_execution_has_a_most_number_of_step_runs(two_steps: World) -> None:
    steps: list[Any] = [rule("a", "= 1"), rule("b", "= 2")]
    each = {"id": "each", "for_each": {"items": "= input.items", "steps": steps}}
    process = two_steps.publish([each])
    assert two_steps.finish(two_steps.start(process, {"items": [1, 2, 3, 4]})).status == "succeeded"
    failed = two_steps.finish(two_steps.start(process, {"items": [1, 2, 3, 4, 5, 6]}))
    assert failed.error["code"] == "too_many_steps"
