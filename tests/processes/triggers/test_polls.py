"""Polled integrations: each item fires once, the cursor moves with its events, errors are reported and cause backoff."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appliance.connectors import contract
from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.monitor import failures
from appliance.processes.executions.service import Execution
from appliance.processes.models import ProcessVersion
from appliance.processes.triggers.polls import LEASE_MS
from appliance.processes.triggers.service import Firing, TriggerState
from appliance.processes.triggers.ticker import list_due_triggers
from tests.processes.world import Bell, World, rule, wait_until


class Asking:
    """A trigger that polls the test connector when the test says so."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.now = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: self.now)
        self.process_id = ""

    def publish(self, **more: Any) -> None:
        trigger = {"integration": {"use": "bell", "trigger": "chime", "input": {"chime": "= trigger.item.chime"}, **more}}
        self.process_id = self.world.publish([rule("a", "= input")], triggers=[trigger])

    @property
    def row(self) -> TriggerState:
        return self.world.scope.get(TriggerState, process_id=self.process_id)

    def look(self, seconds: float = 0) -> None:
        """Polls everything that is due after some time and handles the events."""
        self.now += int(seconds * 1000)
        triggers = self.world.flow.triggers
        triggers.clockwork.tick()
        wait_until(lambda: not db.rows("SELECT 1 FROM trigger_state WHERE next_due = ?", (self.now + LEASE_MS,)))
        for tenant_id, firing_id in db.rows("SELECT tenant_id, id FROM firing WHERE status = 'pending'"):
            triggers.firings.perform(tenant_id, firing_id)

    def heard(self) -> list[str]:
        """The inputs of the executions so far."""
        rows = self.world.scope.select(Firing).where((Firing.process_id == self.process_id) & (Firing.status == "started"))
        return [self.world.scope.get(Execution, id=row.execution_id).input["chime"] for row in rows.order_by(Firing.id)]


@pytest.fixture
def asking(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    yield Asking(idle_world, monkeypatch)
    db.write(lambda: [db.execute(f"DELETE FROM {table}") for table in ("firing", "trigger_state", "integration_circuit")])  # noqa: S608


def test_each_item_starts_one_execution_and_the_cursor_moves_on(asking: Asking) -> None:
    Bell.chimes += ["old"]
    asking.publish()
    asking.look()
    assert (asking.heard(), asking.row.cursor) == ([], 1)
    Bell.chimes += ["one", "two"]
    asking.look(30)
    assert asking.heard() == [], "it is asked once a minute unless the definition says otherwise"
    asking.look(31)
    asking.look(61)
    assert (asking.heard(), asking.row.cursor, Bell.asked) == (["one", "two"], 3, [None, 1, 3])


def test_what_is_left_over_is_asked_for_at_once(asking: Asking) -> None:
    asking.publish(query={"most": 2})
    asking.look()
    Bell.chimes += ["a", "b", "c", "d", "e"]
    asking.look(61)
    asking.look()
    asking.look()
    assert asking.heard() == ["a", "b", "c", "d", "e"]


def test_an_item_that_comes_again_is_the_same(asking: Asking) -> None:
    asking.publish()
    asking.look()
    Bell.chimes += ["a"]
    asking.look(61)
    db.write(lambda: db.execute("UPDATE trigger_state SET cursor = '0'"))
    asking.look(61)
    assert (asking.heard(), Bell.asked[-1]) == (["a"], 0)


def test_errors_are_told_and_backed_off_from_and_lose_nothing(asking: Asking) -> None:
    asking.publish()
    asking.look()
    Bell.chimes += ["a"]
    Bell.broken += [contract.TransientError("It is cracked."), contract.TransientError("It is cracked.")]
    asking.look(61)
    assert (asking.row.failed_in_row, asking.row.last_error["message"]) == (1, "It is cracked.")
    assert asking.row.next_due == asking.now + 60_000
    asking.look(61)
    assert (asking.row.failed_in_row, asking.row.next_due) == (2, asking.now + 120_000)
    [group] = failures.list_failures(asking.world.scope, PageRequest(), process_id=asking.process_id).items
    assert (group.failure_class, group.step, group.count) == ("connector", "trigger integration", 2)
    asking.look(61)
    assert asking.heard() == []
    asking.look(61)
    assert (asking.heard(), asking.row.failed_in_row) == (["a"], 0)


def test_a_service_that_asks_for_patience_gets_it(asking: Asking) -> None:
    asking.publish()
    Bell.broken.append(contract.RateLimited("Too loud.", retry_after=900))
    asking.look()
    assert asking.row.next_due == asking.now + 900_000


@pytest.mark.parametrize("broken", [{"trigger": "nothing"}, {"use": "no-such"}])
def test_what_is_not_there_is_a_failure(asking: Asking, broken: dict[str, Any]) -> None:
    asking.publish(**broken)
    asking.look()
    assert asking.row.last_error["code"] in ("validation_failed", "not_found")
    assert asking.row.next_due > asking.now


def test_a_plugin_that_breaks_the_contract_is_a_failure(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bell, "poll", lambda *_: {"items": []})
    asking.publish()
    asking.look()
    assert asking.row.last_error["code"] == "connector_failed"


def test_cursor_and_events_are_committed_together_or_not_at_all(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.publish()
    asking.look()
    Bell.chimes += ["a", "b"]
    due = asking_due(asking)
    note = asking.world.flow.triggers.firings.record
    seen: list[Any] = []

    def die_at_the_second(*args: Any) -> str | None:
        seen.append(args)
        if len(seen) == 2:
            raise RuntimeError("killed")
        return note(*args)

    polls: Any = asking.world.flow.triggers.polls
    with monkeypatch.context() as dying:
        dying.setattr(asking.world.flow.triggers.firings, "record", die_at_the_second)
        lease = take(asking, due)
        with pytest.raises(RuntimeError):
            polls.poll(asking.world.scope, due, lease)
    assert asking.row.cursor == 0
    assert db.rows("SELECT count(*) FROM firing") == [(0,)]
    asking.look(LEASE_MS / 1000 + 1)
    assert asking.heard() == ["a", "b"], "after the lease of the dead worker somebody else asks"


def test_an_answer_that_comes_after_the_lease_is_thrown_away(asking: Asking) -> None:
    asking.publish()
    asking.look()
    Bell.chimes += ["a"]
    due = asking_due(asking)
    lease = take(asking, due)
    polled = contract.Polled([contract.Item("late", {"chime": "late"})], 99)
    asking.look(LEASE_MS / 1000 + 1)
    polls: Any = asking.world.flow.triggers.polls
    db.write(lambda: polls._store_items(asking.world.scope, due, lease, polled))
    asking.look()
    assert (asking.heard(), asking.row.cursor) == (["a"], 1)


def test_a_paused_process_asks_nobody(asking: Asking) -> None:
    asking.publish()
    asking.look()
    asking.world.flow.pause_process(asking.world.scope, asking.process_id)
    Bell.chimes += ["a"]
    asking.look(600)
    assert len(Bell.asked) == 1
    asking.world.flow.resume_process(asking.world.scope, asking.process_id)
    asking.look()
    assert asking.heard() == ["a"]


def test_a_process_that_may_run_no_more_asks_nobody_and_loses_nothing(asking: Asking) -> None:
    asking.publish()
    asking.look()
    allow(asking, asking.now)
    Bell.chimes += ["a"]
    asking.look(600)
    assert (len(Bell.asked), asking.row.failed_in_row) == (1, 1)
    allow(asking, None)
    asking.look(7200)
    assert asking.heard() == ["a"]


def allow(asking: Asking, until: int | None) -> None:
    """Allows the published version to start until then."""
    changed = asking.world.scope.update(ProcessVersion, allowed_until=until)
    db.write(changed.where(ProcessVersion.process_id == asking.process_id).execute)


def asking_due(asking: Asking) -> Any:
    asking.now += 61_000
    [due] = list_due_triggers(asking.now)
    return due


def take(asking: Asking, due: Any) -> int:
    """Takes the lease of the poll without polling, and returns it."""
    work: list[Callable[[], Any]] = []

    class Held:
        def submit(self, scope: Any, payload: Callable[[], Any]) -> Any:
            work.append(payload)

    polls: Any = asking.world.flow.triggers.polls
    source, polls._source = polls._source, Held()
    polls.start_poll(due)
    polls._source = source
    return int(asking.row.next_due)
