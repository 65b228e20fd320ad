"""Polled integrations: each item fires once, the cursor moves with its events, errors are reported and cause backoff."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appliance.connectors import contract
from appliance.core import clock
from appliance.core.database import db
from appliance.core.leases import LeaseLost
from appliance.core.pages import PageRequest
from appliance.monitor import failures
from appliance.processes.executions.service import Execution
from appliance.processes.models import ProcessVersion
from appliance.processes.triggers.polls import LEASE_MS
from appliance.processes.triggers.service import Firing, TriggerState
from appliance.processes.triggers.ticker import list_due_triggers
from tests.processes.world import Bell, World, rule, wait_until


class PollingTrigger:
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

    def poll(self, seconds: float = 0) -> None:
        """Polls everything that is due after some time and handles the events."""
        self.now += int(seconds * 1000)
        triggers = self.world.flow.triggers
        triggers.clockwork.tick()
        wait_until(lambda: not db.rows("SELECT 1 FROM trigger_state WHERE next_due = ?", (self.now + LEASE_MS,)))
        for tenant_id, firing_id in db.rows("SELECT tenant_id, id FROM firing WHERE status = 'pending'"):
            triggers.firings.perform(tenant_id, firing_id)

    def received(self) -> list[str]:
        """The inputs of the executions so far."""
        rows = self.world.scope.select(Firing).where((Firing.process_id == self.process_id) & (Firing.status == "started"))
        return [self.world.scope.get(Execution, id=row.execution_id).input["chime"] for row in rows.order_by(Firing.id)]


@pytest.fixture
def trigger(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[PollingTrigger]:
    yield PollingTrigger(idle_world, monkeypatch)
    db.write(lambda: [db.execute(f"DELETE FROM {table}") for table in ("firing", "trigger_state", "integration_circuit")])  # noqa: S608


def test_each_item_starts_one_execution_and_the_cursor_moves_on(trigger: PollingTrigger) -> None:
    Bell.chimes += ["old"]
    trigger.publish()
    trigger.poll()
    assert (trigger.received(), trigger.row.cursor) == ([], 1)
    Bell.chimes += ["one", "two"]
    trigger.poll(30)
    assert trigger.received() == [], "it is asked once a minute unless the definition says otherwise"
    trigger.poll(31)
    trigger.poll(61)
    assert (trigger.received(), trigger.row.cursor, Bell.cursors) == (["one", "two"], 3, [None, 1, 3])


def test_remaining_items_are_polled_at_once(trigger: PollingTrigger) -> None:
    trigger.publish(query={"most": 2})
    trigger.poll()
    Bell.chimes += ["a", "b", "c", "d", "e"]
    trigger.poll(61)
    trigger.poll()
    trigger.poll()
    assert trigger.received() == ["a", "b", "c", "d", "e"]


def test_an_item_that_comes_again_is_the_same(trigger: PollingTrigger) -> None:
    trigger.publish()
    trigger.poll()
    Bell.chimes += ["a"]
    trigger.poll(61)
    db.write(lambda: db.execute("UPDATE trigger_state SET cursor = '0'"))
    trigger.poll(61)
    assert (trigger.received(), Bell.cursors[-1]) == (["a"], 0)


def test_errors_are_reported_with_backoff_and_lose_no_items(trigger: PollingTrigger) -> None:
    trigger.publish()
    trigger.poll()
    Bell.chimes += ["a"]
    Bell.broken += [contract.TransientError("It is cracked."), contract.TransientError("It is cracked.")]
    trigger.poll(61)
    assert (trigger.row.failed_in_row, trigger.row.last_error["message"]) == (1, "It is cracked.")
    assert trigger.row.next_due == trigger.now + 60_000
    trigger.poll(61)
    assert (trigger.row.failed_in_row, trigger.row.next_due) == (2, trigger.now + 120_000)
    [group] = failures.list_failures(trigger.world.scope, PageRequest(), process_id=trigger.process_id).items
    assert (group.failure_class, group.step, group.count) == ("connector", "trigger integration", 2)
    trigger.poll(61)
    assert trigger.received() == []
    trigger.poll(61)
    assert (trigger.received(), trigger.row.failed_in_row) == (["a"], 0)


def test_a_retry_after_of_a_polled_service_is_honoured(trigger: PollingTrigger) -> None:
    trigger.publish()
    Bell.broken.append(contract.RateLimited("Too loud.", retry_after=900))
    trigger.poll()
    assert trigger.row.next_due == trigger.now + 900_000


@pytest.mark.parametrize("broken", [{"trigger": "nothing"}, {"use": "no-such"}])
def test_a_missing_integration_or_trigger_is_a_failure(trigger: PollingTrigger, broken: dict[str, Any]) -> None:
    trigger.publish(**broken)
    trigger.poll()
    assert trigger.row.last_error["code"] in ("validation_failed", "not_found")
    assert trigger.row.next_due > trigger.now


def test_a_plugin_that_breaks_the_contract_is_a_failure(trigger: PollingTrigger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bell, "poll", lambda *_: {"items": []})
    trigger.publish()
    trigger.poll()
    assert trigger.row.last_error["code"] == "connector_failed"


@pytest.mark.writes_once(reason="counts calls until it dies")
def test_cursor_and_events_are_committed_together_or_not_at_all(trigger: PollingTrigger, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger.publish()
    trigger.poll()
    Bell.chimes += ["a", "b"]
    due = next_due_poll(trigger)
    note = trigger.world.flow.triggers.firings.record
    seen: list[Any] = []

    def die_at_the_second(*args: Any) -> str | None:
        seen.append(args)
        if len(seen) == 2:
            raise RuntimeError("killed")
        return note(*args)

    polls: Any = trigger.world.flow.triggers.polls
    with monkeypatch.context() as dying:
        dying.setattr(trigger.world.flow.triggers.firings, "record", die_at_the_second)
        lease = take_lease(trigger, due)
        with pytest.raises(RuntimeError):
            polls.poll(trigger.world.scope, due, lease)
    assert trigger.row.cursor == 0
    assert db.rows("SELECT count(*) FROM firing") == [(0,)]
    trigger.poll(LEASE_MS / 1000 + 1)
    assert trigger.received() == ["a", "b"], "after the lease of the dead worker somebody else asks"


def test_an_answer_that_comes_after_the_lease_is_thrown_away(trigger: PollingTrigger) -> None:
    trigger.publish()
    trigger.poll()
    Bell.chimes += ["a"]
    due = next_due_poll(trigger)
    lease = take_lease(trigger, due)
    answer = contract.Polled([contract.Item("late", {"chime": "late"})], 99)
    trigger.poll(LEASE_MS / 1000 + 1)
    polls: Any = trigger.world.flow.triggers.polls
    with pytest.raises(LeaseLost):
        db.write(lambda: polls._store_items(trigger.world.scope, due, lease, answer))
    trigger.poll()
    assert (trigger.received(), trigger.row.cursor) == (["a"], 1)


def test_a_paused_process_does_not_poll(trigger: PollingTrigger) -> None:
    trigger.publish()
    trigger.poll()
    trigger.world.flow.pause_process(trigger.world.scope, trigger.process_id)
    Bell.chimes += ["a"]
    trigger.poll(600)
    assert len(Bell.cursors) == 1
    trigger.world.flow.resume_process(trigger.world.scope, trigger.process_id)
    trigger.poll()
    assert trigger.received() == ["a"]


def test_a_process_that_may_not_start_does_not_poll_and_loses_nothing(trigger: PollingTrigger) -> None:
    trigger.publish()
    trigger.poll()
    allow(trigger, trigger.now)
    Bell.chimes += ["a"]
    trigger.poll(600)
    assert (len(Bell.cursors), trigger.row.failed_in_row) == (1, 1)
    allow(trigger, None)
    trigger.poll(7200)
    assert trigger.received() == ["a"]


def allow(trigger: PollingTrigger, until: int | None) -> None:
    """Allows the published version to start until then."""
    changed = trigger.world.scope.update(ProcessVersion, allowed_until=until)
    db.write(changed.where(ProcessVersion.process_id == trigger.process_id).execute)


def next_due_poll(trigger: PollingTrigger) -> Any:
    trigger.now += 61_000
    [due] = list_due_triggers(trigger.now)
    return due


def take_lease(trigger: PollingTrigger, due: Any) -> int:
    """Takes the lease of the poll without polling, and returns it."""
    work: list[Callable[[], Any]] = []

    class CapturingSource:
        def submit(self, scope: Any, payload: Callable[[], Any]) -> Any:
            work.append(payload)

    polls: Any = trigger.world.flow.triggers.polls
    source, polls._source = polls._source, CapturingSource()
    polls.start_poll(due)
    polls._source = source
    return int(trigger.row.next_due)
