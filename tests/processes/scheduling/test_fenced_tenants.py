"""From the write that closes a tenant or begins its reset, nothing of it starts, long before all of it is cancelled."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, Overloaded
from appliance.core.scope import TenantScope
from appliance.processes import RunAtOnce, Waiter
from appliance.processes.executions.starting import ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.scheduling import admission, fair_share
from appliance.processes.triggers.firings import Event, TriggerKey
from appliance.processes.triggers.ticker import list_lost_firings
from tests.processes.world import World, code, rule
from tests.tenants.fencing import KINDS, fenced

HOURS = 3_600_000
CLOSED = {"reset": (Overloaded, "is being reset"), "deletion": (NotFound, "there is no tenant 'acme'")}


@pytest.fixture(params=KINDS)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def without_rows(folder: Path) -> Iterator[None]:
    """Each test begins without executions and events of others."""
    yield
    db.write(lambda: [db.execute(f"DELETE FROM {table}") for table in ("execution", "firing")])  # noqa: S608


def status_of(execution: str) -> tuple[str, int]:
    ((status, steps),) = db.rows(
        "SELECT status, (SELECT count(*) FROM step_run s WHERE s.execution_id = e.id) FROM execution e WHERE id = ?", (execution,)
    )
    return str(status), int(steps)


def set_columns(execution: str, assignments: str) -> None:
    db.write(lambda: db.execute(f"UPDATE execution SET {assignments} WHERE id = ?", (execution,)))  # noqa: S608


def waits_until_due(world: World, process: str) -> str:
    execution = world.start(process, soon=False)
    world.runner.drive("acme", execution)
    set_columns(execution, "next_run_at = 1")
    return execution


UNCLAIMED: dict[str, Callable[[World, str], str]] = {
    "queued": lambda world, process: world.start(process, soon=False),
    "scheduled": lambda world, process: world.start(process, soon=False, run_at=clock.now_ms() + HOURS),
    "waiting": waits_until_due,
}
MARK = "await api.datapool.create('marks', {what: 'x'});"
PAUSED = [rule("first", "= 1"), {"id": "pause", "wait": {"for": "1h"}}, code("last", MARK)]


@pytest.mark.parametrize("state", UNCLAIMED)
def test_what_nobody_works_on_is_not_begun_before_its_batch(idle_world: World, how: str, state: str) -> None:
    """By no way: a place in the queue, a message, a timer, or the sweeper that finds what is due."""
    world = idle_world
    execution = UNCLAIMED[state](world, world.publish(PAUSED))
    if state != "queued":
        set_columns(execution, "next_run_at = 1")
    before = status_of(execution)
    with fenced(world.scope, how):
        assert (fair_share.ready_tenants(), fair_share.anything_ready()) == ([], False)
        assert world.flow._sweeper._find_due(clock.now_ms() + HOURS) == []
        world.flow._sweeper.sweep()
        assert world.flow.intake.claim_next() is None
        assert world.runner.claim("acme", execution) is None
        world.runner.drive("acme", execution)
        assert (status_of(execution), world.marks()) == (before, [])
    assert world.runner.claim("acme", execution) is not None, "afterwards, the same way works"


def test_one_that_was_found_ready_before_is_not_begun(idle_world: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has found it just before the first write, and claims it just after: another process has not heard of that yet."""
    world = idle_world
    execution = world.start(world.publish(PAUSED), soon=False)
    ready = fair_share.ready_tenants()
    assert ready == ["acme"]
    with fenced(world.scope, how):
        monkeypatch.setattr(fair_share, "ready_tenants", lambda: ready)
        assert world.flow.intake.claim_next() is None
        assert status_of(execution) == ("queued", 0)
        monkeypatch.undo()
    claim = world.flow.intake.claim_next()
    assert claim is not None
    assert claim.execution_id == execution


def test_what_expires_meanwhile_is_left_to_its_batch(idle_world: World, how: str) -> None:
    execution = idle_world.start(idle_world.publish(PAUSED), soon=False, expires_ms=1)
    late = clock.now_ms() + HOURS
    assert [each for _, each in admission.list_expired(late, 10)] == [execution]
    with fenced(idle_world.scope, how):
        assert admission.list_expired(late, 10) == []


def test_one_whose_worker_has_died_is_not_taken_up(idle_world: World, how: str) -> None:
    world = idle_world
    execution = world.start(world.publish(PAUSED), soon=False)
    assert world.runner.claim("acme", execution) is not None
    world.lose_worker(execution)
    with fenced(world.scope, how):
        assert status_of(execution)[0] == "cancelled"
        world.flow._sweeper.sweep()
        assert world.runner.claim("acme", execution) is None


def test_one_that_runs_in_its_callers_thread_is_not_recorded(idle_world: World, how: str) -> None:
    """It was accepted before, and would be inserted with its first commit."""
    world = idle_world
    process = world.publish([rule("one", "= 1")])
    world.flow.start_execution(world.scope, process, StartRequest({}), waiter=Waiter(on_run=lambda _: None))
    runs: list[RunAtOnce] = []
    error, message = CLOSED[how]
    def close_and_run(run: RunAtOnce) -> None:
        runs.append(run)
        stack.enter_context(fenced(world.scope, how))

    with ExitStack() as stack, pytest.raises(error, match=message):
        world.flow.start_execution(world.scope, process, StartRequest({}), waiter=Waiter(on_run=close_and_run))
    assert db.rows("SELECT count(*) FROM execution WHERE id = ?", (runs[0].claim.execution_id,)) == [(0,)]


def test_nothing_new_starts(idle_world: World, how: str) -> None:
    """Neither by a late request, an alert nor an agent: all of them insert an execution."""
    process = idle_world.publish(PAUSED)
    error, message = CLOSED[how]
    count = db.rows("SELECT count(*) FROM execution")
    with fenced(idle_world.scope, how):
        with pytest.raises(error, match=message):
            db.write(lambda: insert_execution(idle_world.scope, process, 1, StartRequest({}), ExecutionOrigin()))
        assert db.rows("SELECT count(*) FROM execution") == count


def test_an_event_of_a_trigger_that_waits_starts_nothing(idle_world: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = idle_world
    process = world.publish([rule("one", "= 1")], triggers=[{"id": "nightly", "schedule": {"cron": "0 6 * * *"}}])
    firings, mark = world.flow.triggers.firings, TriggerKey(process, "nightly", "schedule")
    firing = db.write(lambda: firings.record(world.scope, mark, Event("one", {})))
    assert firing is not None
    count = db.rows("SELECT count(*) FROM execution")
    with fenced(world.scope, how):
        assert [each for _, each, _ in list_lost_firings(clock.now_ms() + HOURS) if each == firing] == []
        firings.perform("acme", firing)
        assert db.rows("SELECT status FROM firing WHERE id = ?", (firing,)) == [("pending",)]
        monkeypatch.setattr("appliance.processes.triggers.firings.is_open", lambda _: True)  # it looked just before
        firings.perform("acme", firing)
        assert db.rows("SELECT count(*) FROM execution") == count
        assert db.rows("SELECT status FROM firing WHERE id = ?", (firing,)) == [("failed",)]


def test_others_go_on(idle_world: World, how: str) -> None:
    """While the queue begins with many executions of a tenant that is fenced, others are not held up."""
    world = idle_world
    for _ in range(3):
        world.start(world.publish(PAUSED), soon=False)
    other = TenantScope("globex", "key:test", world.scope.scopes)
    own = World(world.config, world.pool, world.flow, other, world.scope, world.presence)
    own_process = own.publish([rule("one", "= 1")])
    execution = own.start(own_process, soon=False)
    with fenced(world.scope, how):
        assert fair_share.ready_tenants() == ["globex"]
        claim = world.flow.intake.claim_next()
        assert claim is not None
        assert claim.execution_id == execution
        world.runner.run(claim)
    assert own.get(execution).status == "succeeded"
