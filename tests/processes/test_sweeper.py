"""Lost wake-ups are found, also behind a backlog that never ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import clock, db
from appliance.core.presence import Presence
from appliance.core.queue import TaskQueue
from appliance.processes import executions, sweeper, versions
from appliance.processes.executions import Birth, StartRequest
from appliance.processes.sweeper import WAKE, Sweeper
from appliance.tenants import service as tenants
from tests.processes.world import open_database

ACME = "acme"


class Backlog:
    """Executions that nobody works on, with or without their message."""

    def __init__(self, presence: Presence) -> None:
        self.queue = TaskQueue(db.database.obj)
        self.queue.declare(WAKE, lambda tenant_id, execution_id: None)
        self.sweeper = Sweeper(presence, 1000, self._wake, self.queue)

    def _wake(self, tenant_id: str, execution_id: str) -> None:
        self.queue.enqueue(WAKE, tenant_id, execution_id)

    def add(self, age_ms: int, *, lost: bool) -> str:
        """An execution queued `age_ms` ago; a lost one has no message."""
        scope = tenants.system_scope(ACME)

        def insert() -> str:
            row, _ = executions.insert_execution(scope, "idle", 1, StartRequest({}), Birth())
            db.execute("UPDATE execution SET enqueued_at = ? WHERE id = ?", (clock.now_ms() - age_ms, row.id))
            if not lost:
                self._wake(ACME, row.id)
            return str(row.id)

        return db.write(insert)

    def messages(self) -> set[tuple[str | int, ...]]:
        return self.queue.waiting(WAKE)


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Backlog]:
    with open_database(tmp_path):
        definition = {"id": "idle", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}
        versions.save_draft(tenants.system_scope(ACME), "idle", versions.Draft(definition, {}))
        presence = Presence(tmp_path / "workers")
        yield Backlog(presence)
        presence.close()


def test_with_an_empty_queue_a_lost_wake_up_is_found_after_a_second(backlog: Backlog) -> None:
    old, fresh = backlog.add(1_500, lost=True), backlog.add(0, lost=True)
    assert backlog.sweeper.sweep() == 1
    assert backlog.messages() == {(ACME, old)}
    assert (ACME, fresh) not in backlog.messages()


def test_behind_a_backlog_a_lost_wake_up_is_found_by_reading_the_messages(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {backlog.add(60_000, lost=False) for _ in range(5)}
    lost = backlog.add(60_000, lost=True)
    young = backlog.add(2_000, lost=True)
    assert backlog.sweeper.sweep() == 0, "the messages are read seldom"
    monkeypatch.setattr(sweeper, "BACKLOG_SECONDS", 0.0)
    assert backlog.sweeper.sweep() == 1
    assert backlog.messages() == {(ACME, one) for one in (*held, lost)}
    assert (ACME, young) not in backlog.messages()
    assert backlog.sweeper.sweep() == 0, "nothing is woken twice"
