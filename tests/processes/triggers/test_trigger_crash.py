"""After a crash at any write between an event and its execution there is exactly one execution of it."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.events import hub
from appliance.processes.engine import completion
from appliance.processes.executions.service import Execution
from appliance.processes.triggers.firings import LOST_AFTER_MS
from appliance.processes.triggers.signatures import Request
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from tests.processes.world import World, rule

WHEN = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture(autouse=True)
def nothing_is_left(idle_world: World) -> None:
    db.write(lambda: db.execute("DELETE FROM process"))


def look(world: World) -> None:
    """Does what a worker does: fires what is due and handles the recorded events."""
    world.flow.triggers.clockwork.tick()
    for tenant_id, firing_id in db.rows("SELECT tenant_id, id FROM firing WHERE status = 'pending'"):
        world.flow.triggers.firings.perform(tenant_id, firing_id)


def executions_of(world: World, process_id: str) -> list[Execution]:
    return list(world.scope.select(Execution).where(Execution.process_id == process_id))


def is_cut(number: int, when: When, world: World) -> bool:
    """Whether the power failed at that write of one tick."""
    try:
        with power_cut(number, when):
            look(world)
    except PowerCut:
        return True
    return False


@WHEN
def test_a_due_time_is_run_once(idle_world: World, monkeypatch: pytest.MonkeyPatch, when: When) -> None:
    world, now = idle_world, clock.now_ms() // 60_000 * 60_000 + 10_000  # so that no look crosses into the next minute
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    process_id = world.publish([rule("a", "= input")], triggers=[{"schedule": {"cron": "* * * * *"}}])
    for number in range(1, MOST_WRITES):
        now += 60_000
        cut = is_cut(number, when, world)
        now += LOST_AFTER_MS + 1
        look(world)
        now -= LOST_AFTER_MS + 1
        assert len(executions_of(world, process_id)) == number
        if not cut:
            break
    assert 2 <= number < MOST_WRITES


@WHEN
def test_the_end_of_an_execution_starts_one(idle_world: World, when: When) -> None:
    world = idle_world
    withdraw = hub.subscribe(completion.ExecutionEnded, world.flow.triggers.changes.record_end)
    try:
        source = world.publish([rule("a", "= 1")])
        process_id = world.publish([rule("b", "= input")], triggers=[{"process": {"id": source}}])
        for number in range(1, MOST_WRITES):
            execution = world.start(source, soon=False)
            cut = False
            try:
                with power_cut(number, when):
                    world.runner.drive("acme", execution)
                    look(world)
            except PowerCut:
                cut = True
            if world.get(execution).status != "succeeded":
                world.lose_worker(execution)
                world.runner.drive("acme", execution)
            look(world)
            assert len(executions_of(world, process_id)) == number
            if not cut:
                break
        assert 3 <= number < MOST_WRITES
    finally:
        withdraw()


@WHEN
def test_a_delivery_that_is_sent_until_it_is_answered_starts_one(idle_world: World, when: When) -> None:
    world = idle_world
    webhook = {"path": "crash", "verify": {"kind": "none", "delivery_header": "x-id"}}
    process_id = world.publish([rule("a", "= input")], triggers=[{"webhook": webhook}])
    for number in range(1, MOST_WRITES):
        request = Request("crash", {"x-id": f"delivery-{number}"}, b"{}")
        cut = False
        try:
            with power_cut(number, when):
                world.flow.receive_webhook("acme", request, "req_1")
        except PowerCut:
            cut = True
        first = world.flow.receive_webhook("acme", request, "req_2")
        assert world.flow.receive_webhook("acme", request, "req_3").execution_id == first.execution_id
        assert len(executions_of(world, process_id)) == number
        if not cut:
            break
    assert 2 <= number < MOST_WRITES
