"""A burst of events that fills a tenant's queue loses nothing: the others are retried."""

from collections.abc import Iterator

import pytest

from appliance.core.database import db
from appliance.core.events import hub
from appliance.processes.engine import completion
from appliance.processes.executions.service import Execution
from appliance.processes.scheduling import backlog
from appliance.processes.triggers.service import Firing
from tests.processes.world import World, rule


@pytest.fixture(autouse=True)
def nothing_is_left(idle_world: World) -> Iterator[None]:
    db.write(lambda: db.execute("DELETE FROM process"))
    yield
    backlog.configure(queued=10_000, descendants=1_000)


def look(world: World) -> None:
    for tenant_id, firing_id in db.rows("SELECT tenant_id, id FROM firing WHERE status = 'pending'"):
        world.flow.triggers.firings.perform(tenant_id, firing_id)


def test_an_event_waits_while_the_queue_is_full(idle_world: World) -> None:
    world = idle_world
    withdraw = hub.subscribe(completion.ExecutionEnded, world.flow.triggers.changes.record_end)
    try:
        source = world.publish([rule("a", "= 1")])
        process_id = world.publish([rule("b", "= input")], triggers=[{"process": {"id": source}}])
        world.runner.drive("acme", world.start(source, soon=False))
    finally:
        withdraw()
    backlog.configure(queued=0, descendants=1_000)
    look(world)
    (firing,) = world.scope.select(Firing).where(Firing.process_id == process_id)
    assert (firing.status, firing.attempts) == ("pending", 1)
    assert world.scope.select(Execution).where(Execution.process_id == process_id).count() == 0
    backlog.configure(queued=10_000, descendants=1_000)
    look(world)
    (started,) = world.scope.select(Execution).where(Execution.process_id == process_id)
    assert started.status == "queued"
