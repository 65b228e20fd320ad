"""Alerts: each transition is stored and notified once, even with concurrent evaluation and interruptions."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.app.quotas import make_usage
from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, Draining, NotFound, ScopeMissing, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit, failures, tally
from appliance.monitor import logs as log_lines
from appliance.monitor.alerts import loops
from appliance.monitor.alerts.actions import Action, EmailResult, Notice, Notifier
from appliance.monitor.alerts.conditions import Condition, describe
from appliance.monitor.alerts.measurements import DataSources
from appliance.monitor.alerts.service import AlertChange, AlertEventRow, AlertRow, Alerts, AlertSpec, purge
from appliance.monitor.alerts.transitions import AlertState, Timing, next_transition
from appliance.monitor.failures import Failure
from appliance.monitor.logs import LineFilter
from appliance.monitor.webhooks import Webhooks, WebhookSpec
from tests.tenants.fencing import KINDS, fenced

MINUTE, DAY = 60_000, 86_400_000
FAILURES = Condition("failures", process="intake", above=1, window_ms=15 * MINUTE)
PROCESS = Action("process", process="notify")
EMAIL = Action("email", integration="post", members=("role:owner",))


class World:
    """The data sources of alerts, set by the test; `sent` records the notifications."""

    def __init__(self) -> None:
        self.age, self.last = 0, 0
        self.silent: list[str] = []
        self.expiring: list[str] = []
        self.used = 12.0
        self.sent: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.owners: tuple[str, ...] = ("ada",)
        self.emails: list[tuple[str, str]] = []
        self.is_draining = False
        facts = DataSources(
            queue_age_ms=lambda scope: self.age, last_execution=lambda scope, process: self.last or None,
            failing_integrations=lambda scope: self.silent, expiring=lambda scope, until: self.expiring,
            quota_state=make_usage().read_state, disk_used=lambda: self.used,
        )  # fmt: skip
        self.alerts = Alerts(facts, Notifier(lambda scope, action: None, self._send, self._start))

    def _send(self, scope: TenantScope, action: Action, notice: Notice) -> EmailResult:
        self.sent.append(("email", f"{scope.tenant_id} {notice.turn}"))
        readers = self.owners if action.members == ("role:owner",) else action.members
        self.emails += [(notice.turn, each) for each in readers]
        return EmailResult(readers, self.problems)

    def _start(self, scope: TenantScope, action: Action, notice: Notice) -> list[str]:
        if self.is_draining:
            raise Draining("stopping")
        self.sent.append(("process", notice.key))
        return []

    def watch(self) -> int:
        return loops.evaluate_all(self.alerts.facts)

    def send_due(self) -> int:
        return loops.send_due(self.alerts.notifier)


BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, where a test does not ask for both."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/gos.db"
    return str(request.getfixturevalue("cluster").emptied())


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock_offset(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset of the clock, in ms."""
    offset, true_now = [0], clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: true_now() + offset[0])
    return offset


def fail(scope: TenantScope, process: str = "intake", count: int = 1) -> None:
    for _ in range(count):
        db.write(lambda: tally.add(scope, "execution", f"{process}:failed", 20))


def events(scope: TenantScope, alert_id: str) -> list[tuple[str, bool]]:
    rows = scope.select(AlertEventRow).where(AlertEventRow.alert_id == alert_id).order_by(AlertEventRow.turn)
    return [(row.kind, row.silenced) for row in rows]


@BOTH
def test_failures_over_a_limit_fire_once_and_are_resolved_once(
    world: World, acme: TenantScope, other: TenantScope, clock_offset: list[int]
) -> None:
    acme_all = replace(acme, scopes=frozenset({"processflow.execute"}))
    alert = world.alerts.create_alert(acme_all, AlertSpec("Intake fails", FAILURES, [PROCESS]))
    fail(acme, count=1)
    fail(acme, "another", count=5)
    fail(other, count=5)
    assert world.watch() == 0
    fail(acme)
    assert (world.watch(), world.watch()) == (1, 0)
    row = world.alerts.get_alert(acme, alert.id)
    assert row.state == "firing"
    (event,) = world.alerts.list_events(acme, alert.id, PageRequest()).items
    assert (event.kind, event.text) == ("firing", "2 failures of intake within 15m, at most 1 allowed")
    assert (world.send_due(), world.send_due()) == (1, 0)
    assert world.sent == [("process", f"alert/{event.id}")]
    clock_offset[0] += 17 * MINUTE
    assert (world.watch(), world.watch()) == (1, 0)
    assert events(acme, alert.id) == [("firing", False), ("resolved", False)]
    assert world.send_due() == 1
    lines = log_lines.list_lines(acme, LineFilter(source="alert"), PageRequest()).items
    assert [line.level for line in lines] == ["info", "warn"]
    assert log_lines.list_lines(other, LineFilter(source="alert"), PageRequest()).items == []


@BOTH
def test_of_two_concurrent_transitions_one_is_stored(world: World, acme: TenantScope) -> None:
    alert = world.alerts.create_alert(acme, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000)))
    stale = acme.get(AlertRow, id=alert.id)
    world.age = 5000
    assert loops.evaluate_alert(acme, alert.id, world.alerts.facts)
    transition = next_transition(AlertState("ok", stale.since), True, clock.now_ms(), Timing(0, 0))
    assert not db.write(lambda: loops._store_transition(acme, stale, transition, "late"))
    assert events(acme, alert.id) == [("firing", False)]


def test_an_interrupted_notification_is_sent_again_with_the_same_key(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute", "integrations.execute"}))
    world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [EMAIL, PROCESS]))
    world.age, world.is_draining = 5000, True
    assert (world.watch(), world.send_due()) == (1, 0)
    world.is_draining = False
    assert (world.send_due(), world.send_due()) == (1, 0)
    assert [kind for kind, _ in world.sent] == ["email", "email", "process"]


@pytest.mark.parametrize("how", KINDS)
def test_no_alert_of_a_tenant_that_is_reset_or_deleted_fires_or_is_sent(world: World, acme: TenantScope, how: str) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute", "integrations.execute"}))
    world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [EMAIL, PROCESS]))
    world.age = 5000
    with fenced(acme, how):
        assert (world.watch(), world.send_due()) == (0, 0)
    assert world.watch() == 1
    with fenced(acme, how):
        assert (loops.next_due(), world.send_due(), world.sent) == (None, 0, [])
    assert (world.send_due(), len(world.sent)) == (1, 2)


def test_a_failed_notification_is_in_the_history_and_the_log(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.execute"}))
    alert = world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [EMAIL]))
    world.age, world.problems = 5000, ["the letter was refused"]
    world.watch()
    assert world.send_due() == 1
    (event,) = world.alerts.list_events(acme, alert.id, PageRequest()).items
    assert (event.problems, event.told_at is not None) == (["the letter was refused"], True)
    (line,) = log_lines.list_lines(acme, LineFilter(level="error", source="alert"), PageRequest()).items
    assert line.message == "Waits: the letter was refused"


@BOTH
def test_webhooks_are_queued_in_the_transaction_of_the_transition(world: World, acme: TenantScope, clock_offset: list[int]) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.write"}))
    hooks = Webhooks(Sealer(b"k" * 32), Egress.of(["127.0.0.0/8"]))
    subscribed, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/a", ["alert.firing"]))
    by_id, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/b", ["execution.failed"]))
    waits = Condition("queue_age", longer_than_ms=1000)
    world.alerts.create_alert(everything, AlertSpec("All", waits, [Action("webhook")]))
    world.alerts.create_alert(everything, AlertSpec("One", waits, [Action("webhook", webhook=by_id.id)]))
    world.age = 5000
    assert (world.watch(), world.watch()) == (2, 0)
    world.age = 0
    assert world.watch() == 2
    received = [
        [
            row.event for row in hooks.list_deliveries(acme, each.id, None, PageRequest(sort="id")).items
        ] for each in (subscribed, by_id)
    ]
    assert received == [["alert.firing"], ["alert.firing", "alert.resolved"]]
    assert world.send_due() == 0


@BOTH
def test_a_resolution_goes_to_the_recipients_of_the_firing(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.execute", "integrations.write", "processflow.execute"}))
    hooks = Webhooks(Sealer(b"k" * 32), Egress.of(["127.0.0.0/8"]))
    event_names = ["alert.firing", "alert.resolved"]
    first, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/a", event_names))
    waits = Condition("queue_age", longer_than_ms=1000)
    alert = world.alerts.create_alert(everything, AlertSpec("Waits", waits, [EMAIL, Action("webhook")]))
    world.age = 5000
    assert (world.watch(), world.send_due()) == (1, 1)
    world.owners = ("ada", "grace")
    second, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/b", event_names))
    world.alerts.change_alert(everything, alert.id, AlertChange(actions=[EMAIL, PROCESS, Action("webhook", webhook=second.id)]))
    world.age = 0
    assert (world.watch(), world.send_due()) == (1, 1)
    assert world.emails == [("firing", "ada"), ("resolved", "ada")]
    assert [kind for kind, _ in world.sent] == ["email", "email"]
    deliveries = [hooks.list_deliveries(acme, each.id, None, PageRequest(sort="id")).items for each in (first, second)]
    received = [[row.event for row in rows] for rows in deliveries]
    assert received == [event_names, []]
    world.age = 5000
    assert (world.watch(), world.send_due()) == (1, 1)
    assert world.emails[2:] == [("firing", "ada"), ("firing", "grace")]


def test_without_a_sent_firing_no_resolution_is_sent(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.execute"}))
    world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [EMAIL]))
    world.age, world.owners, world.problems = 5000, (), ["nobody signs in with an e-mail address"]
    assert (world.watch(), world.send_due()) == (1, 1)
    world.age, world.owners = 0, ("ada",)
    assert (world.watch(), world.send_due()) == (1, 0)
    assert world.emails == []


def test_a_silenced_alert_notifies_after_the_silence(world: World, acme: TenantScope, clock_offset: list[int]) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute"}))
    alert = world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [PROCESS]))
    world.alerts.change_alert(everything, alert.id, AlertChange(silenced_until=clock.now_ms() + MINUTE))
    world.age = 5000
    assert (world.watch(), world.send_due()) == (1, 0)
    clock_offset[0] += 2 * MINUTE
    assert (world.watch(), world.send_due()) == (1, 1)
    assert events(acme, alert.id) == [("firing", True), ("firing", False)]
    world.alerts.change_alert(everything, alert.id, AlertChange(silenced_until=clock.now_ms() + MINUTE))
    world.age = 0
    assert (world.watch(), world.send_due()) == (1, 0)


def test_disabling_a_firing_alert_resolves_it(world: World, acme: TenantScope) -> None:
    alert = world.alerts.create_alert(acme, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000)))
    world.age = 5000
    world.watch()
    off = world.alerts.change_alert(acme, alert.id, AlertChange(enabled=False))
    assert (off.state, world.watch(), events(acme, alert.id)) == ("ok", 0, [("firing", False), ("resolved", False)])
    world.alerts.change_alert(acme, alert.id, AlertChange(enabled=True))
    assert (world.watch(), len(events(acme, alert.id))) == (1, 3)


def test_a_failure_rate_needs_a_minimum_of_executions(world: World, acme: TenantScope) -> None:
    rate = Condition("failure_rate", process="intake", above=50, window_ms=15 * MINUTE, at_least=4)
    alert = world.alerts.create_alert(acme, AlertSpec("Rate", rate))
    fail(acme, count=3)
    assert world.watch() == 0
    fail(acme)
    assert world.watch() == 1
    assert world.alerts.evaluate(acme, alert).text == "100 % of 4 executions of intake failed within 15m, at most 50 % allowed"


def test_slow_executions_fire(world: World, acme: TenantScope) -> None:
    slow = Condition("duration", process="intake", longer_than_ms=2000, window_ms=15 * MINUTE)
    world.alerts.create_alert(acme, AlertSpec("Slow", slow))
    assert world.watch() == 0
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 1000))
    assert world.watch() == 0
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 9000))
    assert world.watch() == 1


@BOTH
def test_a_group_of_failures_is_counted_by_itself(world: World, acme: TenantScope, clock_offset: list[int]) -> None:
    failure = Failure("intake", "exe_1", "push", "connector", "connector_failed", "no answer")
    group = db.write(lambda: failures.record_failure(acme, failure))
    alert = world.alerts.create_alert(
        acme, AlertSpec("Group", Condition("failures", failure=group, above=1, window_ms=15 * MINUTE))
    )
    assert world.watch() == 0
    db.write(lambda: failures.record_failure(acme, replace(failure, execution_id="exe_2")))
    assert world.watch() == 1
    assert "2 failures of the group" in world.alerts.evaluate(acme, alert).text
    clock_offset[0] += 20 * MINUTE
    assert world.watch() == 1


def test_a_missing_execution_counts_from_the_creation_of_the_alert(
    world: World, acme: TenantScope, clock_offset: list[int]
) -> None:
    nightly = Condition("no_execution", process="nightly", window_ms=DAY)
    world.alerts.create_alert(acme, AlertSpec("Nightly", nightly))
    assert world.watch() == 0
    clock_offset[0] += DAY + MINUTE
    assert world.watch() == 1
    world.last = clock.now_ms()
    assert world.watch() == 1


def test_failing_integrations_and_expiring_keys_fire(world: World, acme: TenantScope) -> None:
    world.alerts.create_alert(acme, AlertSpec("ERP", Condition("integration_failing", integration="erp")))
    alert = world.alerts.create_alert(acme, AlertSpec("Ends", Condition("expiring", window_ms=14 * DAY)))
    world.silent = ["mail"]
    assert world.watch() == 0
    world.silent, world.expiring = ["erp", "mail"], [f"key {n}" for n in range(7)]
    assert world.watch() == 2
    assert world.alerts.evaluate(acme, alert).text.endswith("key 4 and 2 more")


INVALID = (
    (Condition("failures", window_ms=MINUTE), "/condition/above"),
    (Condition("failures", above=1, window_ms=MINUTE, process="a", failure="fail_1"), "/condition/process"),
    (Condition("failures", above=1, window_ms=MINUTE, failure="fail_none"), "/condition/failure"),
    (Condition("failures", above=1, window_ms=1), "/condition/window"),
    (Condition("failures", above=1, window_ms=31 * DAY), "/condition/window"),
    (Condition("failure_rate", above=100, window_ms=MINUTE), "/condition/above"),
    (Condition("queue_age", longer_than_ms=0), "/condition/longer_than"),
    (Condition("no_execution", window_ms=MINUTE), "/condition/process"),
    (Condition("queue_age", longer_than_ms=1, process="a"), "/condition/process"),
)


def test_an_invalid_condition_is_refused(world: World, acme: TenantScope) -> None:
    for condition, pointer in INVALID:
        with pytest.raises(ValidationFailed) as caught:
            world.alerts.create_alert(acme, AlertSpec("Wrong", condition))
        assert [detail.pointer for detail in caught.value.details] == [pointer]


def test_an_alert_needs_the_scopes_of_its_actions(world: World, acme: TenantScope) -> None:
    waits = Condition("queue_age", longer_than_ms=1000)
    for action in (PROCESS, EMAIL, Action("webhook")):
        with pytest.raises(ScopeMissing):
            world.alerts.create_alert(replace(acme, scopes=frozenset({"processflow.write"})), AlertSpec("Waits", waits, [action]))
    everything = replace(acme, scopes=frozenset({"processflow.execute"}))
    alert = world.alerts.create_alert(everything, AlertSpec("Waits", waits, [PROCESS]))
    another = AlertChange(condition=Condition("expiring", window_ms=DAY))
    with pytest.raises(ScopeMissing):
        world.alerts.change_alert(replace(acme, scopes=frozenset()), alert.id, another)


def test_alerts_are_isolated_by_tenant(world: World, acme: TenantScope, other: TenantScope) -> None:
    alert = world.alerts.create_alert(acme, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000)))
    for verb in (world.alerts.get_alert, world.alerts.delete_alert, world.alerts.send_test):
        with pytest.raises(NotFound):
            verb(other, alert.id)
    with pytest.raises(Conflict):
        world.alerts.send_test(acme, alert.id)
    world.alerts.delete_alert(acme, alert.id)
    assert world.alerts.list_alerts(acme, PageRequest()).items == []
    entries = audit.list_entries(acme, audit.AuditFilter(subject=alert.id), PageRequest()).items
    assert [entry.action for entry in entries] == ["alert.delete", "alert.create"]


def test_a_test_is_sent_and_old_events_are_purged(world: World, acme: TenantScope, clock_offset: list[int]) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute"}))
    alert = world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [PROCESS]))
    event = world.alerts.send_test(everything, alert.id)
    assert (world.send_due(), world.sent) == (1, [("process", f"alert/{event.id}")])
    world.age = 5000
    assert (world.watch(), events(acme, alert.id)) == (1, [("test", False), ("firing", False)])
    assert purge(clock.now_ms() + 1) == 2


def test_every_condition_is_described_in_a_sentence() -> None:
    assert describe(FAILURES) == "more than 1 failure of intake within 15m"
    assert describe(Condition("expiring", window_ms=14 * DAY)) == "an API key or a certificate expires within 14d"


def test_a_full_disk_is_reported_in_percent(world: World, acme: TenantScope) -> None:
    alert = world.alerts.create_alert(acme, AlertSpec("Disk", Condition("disk_full", above=90)))
    assert (world.watch(), describe(Condition("disk_full", above=90))) == (0, "more than 90 % of the appliance's disk is in use")
    world.used = 90.04
    assert world.watch() == 1
    (event,) = world.alerts.list_events(acme, alert.id, PageRequest()).items
    assert event.text == "90 % of the appliance's disk is in use, at most 90 % allowed"
    with pytest.raises(ValidationFailed):
        world.alerts.create_alert(acme, AlertSpec("Disk", Condition("disk_full", above=100)))
