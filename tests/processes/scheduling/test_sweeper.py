"""The sweeper finds lost wake-ups, even behind an endless backlog, ends expired executions and queues due ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.leases import OrphanFinder
from appliance.core.queue import TaskQueue
from appliance.processes.definitions import versions
from appliance.processes.engine import store
from appliance.processes.executions import service as executions
from appliance.processes.executions.service import Execution
from appliance.processes.executions.starting import ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.scheduling.clock_jumps import ClockJumps
from appliance.processes.scheduling.sweeper import Sweeper
from appliance.tenants import service as tenants
from tests.processes.world import open_database

ACME = "acme"


class Backlog:
    """Executions that nobody works on; `woken` and `cancelled` are what the sweeper asked workers to look at."""

    def __init__(self, presence: Presence) -> None:
        self.queue = TaskQueue()
        self.queue.declare("execution", lambda tenant_id, execution_id: None)
        orphans = OrphanFinder(store.LEASES, presence.instance, presence.is_alive, lambda key: False)
        self.sweeper = Sweeper(orphans, ClockJumps([], lambda: None), 1000, self, self.queue)
        self.scope = tenants.system_scope(ACME)
        self.woken: list[str] = []
        self.cancelled: list[str] = []

    def wake(self, tenant_id: str, execution_id: str) -> None:
        db.after_commit(lambda: self.woken.append(execution_id))
        self.queue.enqueue("execution", tenant_id, execution_id)

    def wake_cancelled(self, tenant_id: str, execution_id: str) -> None:
        db.after_commit(lambda: self.cancelled.append(execution_id))

    def add(self, **request: Any) -> str:
        """An execution that is queued without a message."""
        created = db.write(
            lambda: insert_execution(self.scope, "idle", 1, StartRequest({}, **request), ExecutionOrigin())
        )
        return str(created[0].id)

    def change(self, execution_id: str, **values: object) -> None:
        db.write(lambda: self.scope.update(Execution, **values).where(Execution.id == execution_id).execute())

    def get(self, execution_id: str) -> Execution:
        return executions.get_execution(self.scope, execution_id)


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Backlog]:
    with open_database(tmp_path):
        definition = {"id": "idle", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}
        versions.save_draft(tenants.system_scope(ACME), "idle", versions.Draft(definition, {}))
        presence = Presence(tmp_path / "workers")
        yield Backlog(presence)
        presence.close()


def test_a_ready_execution_without_a_message_gets_one(backlog: Backlog) -> None:
    assert backlog.sweeper.sweep() == 0
    assert backlog.woken == [], "nothing is there, nobody is woken"
    backlog.add()
    backlog.add()
    backlog.sweeper.sweep()
    assert len(backlog.woken) == 1, "one is enough, whoever begins the first wakes the next"
    backlog.sweeper.sweep()
    assert len(backlog.woken) == 1, "while there is a message, none is added"


def test_due_executions_are_queued_in_order(backlog: Backlog) -> None:
    due, later = backlog.add(run_at=clock.now_ms() + 60_000), backlog.add(run_at=clock.now_ms() + 60_000)
    backlog.change(due, next_run_at=clock.now_ms() - 1)
    assert backlog.sweeper.sweep() == 1
    assert (backlog.get(due).status, backlog.get(later).status) == ("queued", "scheduled")
    assert backlog.woken == [due]


def test_executions_of_a_dead_worker_are_queued_or_cancelled(backlog: Backlog) -> None:
    running, cancelling = backlog.add(), backlog.add()
    for one, status in ((running, "running"), (cancelling, "cancelling")):
        backlog.change(one, status=status, owner="wrk_dead", started_at=1, lease_until=clock.now_ms() + 60_000)
    assert backlog.sweeper.sweep() == 2
    assert (backlog.get(running).status, backlog.get(cancelling).status) == ("queued", "cancelling")
    assert (backlog.woken, backlog.cancelled) == ([running], [cancelling])


def test_an_expired_execution_never_runs(backlog: Backlog) -> None:
    late, early, scheduled = (
        backlog.add(expires_ms=1_000),
        backlog.add(expires_ms=60_000),
        backlog.add(expires_ms=1_000, run_at=clock.now_ms() + 60_000),
    )
    assert backlog.get(scheduled).expires_at > clock.now_ms() + 60_000, "it counts from its own time"
    backlog.change(late, expires_at=clock.now_ms() - 1)
    backlog.change(scheduled, expires_at=clock.now_ms() - 1)
    assert backlog.sweeper.sweep() == 2
    result = backlog.get(late)
    assert (result.status, result.error["code"], result.started_at) == ("expired", "expired", None)
    assert (backlog.get(early).status, backlog.get(scheduled).status) == ("queued", "expired")


def test_a_started_execution_does_not_expire(backlog: Backlog) -> None:
    started = backlog.add(expires_ms=1_000)
    backlog.change(started, expires_at=clock.now_ms() - 1, started_at=clock.now_ms() - 500)
    assert backlog.sweeper.sweep() == 0
    assert backlog.get(started).status == "queued"
