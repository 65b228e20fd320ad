"""Alerts: each turn is kept and told once, whoever finds it and whenever they are cut short."""

from dataclasses import replace
from pathlib import Path

import pytest

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

MINUTE, DAY = 60_000, 86_400_000
FAILURES = Condition("failures", process="intake", above=1, window_ms=15 * MINUTE)
PROCESS = Action("process", process="notify")
LETTER = Action("email", integration="post", members=("role:owner",))


class World:
    """What alerts ask of the appliance, as a test says it; `told` is what they had done."""

    def __init__(self) -> None:
        self.age, self.last = 0, 0
        self.silent: list[str] = []
        self.ending: list[str] = []
        self.used = 12.0
        self.told: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.owners: tuple[str, ...] = ("ada",)
        self.letters: list[tuple[str, str]] = []
        self.is_draining = False
        facts = DataSources(
            queue_age_ms=lambda scope: self.age, last_execution=lambda scope, process: self.last or None,
            failing_integrations=lambda scope: self.silent, expiring=lambda scope, until: self.ending, disk_used=lambda: self.used,
        )  # fmt: skip
        self.alerts = Alerts(facts, Notifier(lambda scope, action: None, self._send, self._start))

    def _send(self, scope: TenantScope, action: Action, notice: Notice) -> EmailResult:
        self.told.append(("email", f"{scope.tenant_id} {notice.turn}"))
        readers = self.owners if action.members == ("role:owner",) else action.members
        self.letters += [(notice.turn, each) for each in readers]
        return EmailResult(readers, self.problems)

    def _start(self, scope: TenantScope, action: Action, notice: Notice) -> list[str]:
        if self.is_draining:
            raise Draining("stopping")
        self.told.append(("process", notice.key))
        return []

    def watch(self) -> int:
        return loops.evaluate_all(self.alerts.facts)

    def tell(self) -> int:
        return loops.send_due(self.alerts.reach)


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
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far the clock stands ahead, in ms."""
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
    world: World, acme: TenantScope, other: TenantScope, ahead: list[int]
) -> None:
    acme_all = replace(acme, scopes=frozenset({"processflow.execute"}))
    made = world.alerts.create_alert(acme_all, AlertSpec("Intake fails", FAILURES, [PROCESS]))
    fail(acme, count=1)
    fail(acme, "another", count=5)
    fail(other, count=5)
    assert world.watch() == 0
    fail(acme)
    assert (world.watch(), world.watch()) == (1, 0)
    row = world.alerts.get_alert(acme, made.id)
    assert row.state == "firing"
    (event,) = world.alerts.list_events(acme, made.id, PageRequest()).items
    assert (event.kind, event.text) == ("firing", "2 failures of intake within 15m, at most 1 allowed")
    assert (world.tell(), world.tell()) == (1, 0)
    assert world.told == [("process", f"alert/{event.id}")]
    ahead[0] += 17 * MINUTE
    assert (world.watch(), world.watch()) == (1, 0)
    assert events(acme, made.id) == [("firing", False), ("resolved", False)]
    assert world.tell() == 1
    lines = log_lines.list_lines(acme, LineFilter(source="alert"), PageRequest()).items
    assert [line.level for line in lines] == ["info", "warn"]
    assert log_lines.list_lines(other, LineFilter(source="alert"), PageRequest()).items == []


@BOTH
def test_of_two_who_find_the_same_turn_one_keeps_it(world: World, acme: TenantScope) -> None:
    made = world.alerts.create_alert(acme, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000)))
    stale = acme.get(AlertRow, id=made.id)
    world.age = 5000
    assert loops.evaluate_alert(acme, made.id, world.alerts.facts)
    verdict = next_transition(AlertState("ok", stale.since), True, clock.now_ms(), Timing(0, 0))
    assert not db.write(lambda: loops._store_transition(acme, stale, verdict, "late"))
    assert events(acme, made.id) == [("firing", False)]


def test_who_was_cut_short_before_the_note_tells_under_the_same_key(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute", "integrations.execute"}))
    world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [LETTER, PROCESS]))
    world.age, world.is_draining = 5000, True
    assert (world.watch(), world.tell()) == (1, 0)
    world.is_draining = False
    assert (world.tell(), world.tell()) == (1, 0)
    assert [kind for kind, _ in world.told] == ["email", "email", "process"]


def test_what_could_not_be_told_stands_in_the_history_and_in_the_log(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.execute"}))
    made = world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [LETTER]))
    world.age, world.problems = 5000, ["the letter was refused"]
    world.watch()
    assert world.tell() == 1
    (event,) = world.alerts.list_events(acme, made.id, PageRequest()).items
    assert (event.problems, event.told_at is not None) == (["the letter was refused"], True)
    (line,) = log_lines.list_lines(acme, LineFilter(level="error", source="alert"), PageRequest()).items
    assert line.message == "Waits: the letter was refused"


@BOTH
def test_webhooks_hear_of_a_turn_from_its_own_transaction(world: World, acme: TenantScope, ahead: list[int]) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.write"}))
    hooks = Webhooks(Sealer(b"k" * 32), Egress.of(["127.0.0.0/8"]))
    asked, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/a", ["alert.firing"]))
    named, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/b", ["execution.failed"]))
    waits = Condition("queue_age", longer_than_ms=1000)
    world.alerts.create_alert(everything, AlertSpec("All", waits, [Action("webhook")]))
    world.alerts.create_alert(everything, AlertSpec("One", waits, [Action("webhook", webhook=named.id)]))
    world.age = 5000
    assert (world.watch(), world.watch()) == (2, 0)
    world.age = 0
    assert world.watch() == 2
    heard = [
        [row.event for row in hooks.list_deliveries(acme, each.id, None, PageRequest(sort="id")).items] for each in (asked, named)
    ]
    assert heard == [["alert.firing"], ["alert.firing", "alert.resolved"]]
    assert world.tell() == 0


@BOTH
def test_of_the_end_hears_who_heard_of_the_beginning_and_nobody_else(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.execute", "integrations.write", "processflow.execute"}))
    hooks = Webhooks(Sealer(b"k" * 32), Egress.of(["127.0.0.0/8"]))
    both = ["alert.firing", "alert.resolved"]
    early, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/a", both))
    waits = Condition("queue_age", longer_than_ms=1000)
    made = world.alerts.create_alert(everything, AlertSpec("Waits", waits, [LETTER, Action("webhook")]))
    world.age = 5000
    assert (world.watch(), world.tell()) == (1, 1)
    world.owners = ("ada", "grace")
    late, _ = hooks.create_webhook(acme, WebhookSpec("http://127.0.0.1:9/b", both))
    world.alerts.change_alert(everything, made.id, AlertChange(actions=[LETTER, PROCESS, Action("webhook", webhook=late.id)]))
    world.age = 0
    assert (world.watch(), world.tell()) == (1, 1)
    assert world.letters == [("firing", "ada"), ("resolved", "ada")]
    assert [kind for kind, _ in world.told] == ["email", "email"]
    told = [hooks.list_deliveries(acme, each.id, None, PageRequest(sort="id")).items for each in (early, late)]
    heard = [[row.event for row in rows] for rows in told]
    assert heard == [both, []]
    world.age = 5000
    assert (world.watch(), world.tell()) == (1, 1)
    assert world.letters[2:] == [("firing", "ada"), ("firing", "grace")]


def test_nobody_hears_of_an_end_who_could_not_be_told_of_the_beginning(world: World, acme: TenantScope) -> None:
    everything = replace(acme, scopes=frozenset({"integrations.execute"}))
    world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [LETTER]))
    world.age, world.owners, world.problems = 5000, (), ["nobody signs in with an e-mail address"]
    assert (world.watch(), world.tell()) == (1, 1)
    world.age, world.owners = 0, ("ada",)
    assert (world.watch(), world.tell()) == (1, 0)
    assert world.letters == []


def test_nobody_is_told_in_a_silence_and_everybody_after_it(world: World, acme: TenantScope, ahead: list[int]) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute"}))
    made = world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [PROCESS]))
    world.alerts.change_alert(everything, made.id, AlertChange(silenced_until=clock.now_ms() + MINUTE))
    world.age = 5000
    assert (world.watch(), world.tell()) == (1, 0)
    ahead[0] += 2 * MINUTE
    assert (world.watch(), world.tell()) == (1, 1)
    assert events(acme, made.id) == [("firing", True), ("firing", False)]
    world.alerts.change_alert(everything, made.id, AlertChange(silenced_until=clock.now_ms() + MINUTE))
    world.age = 0
    assert (world.watch(), world.tell()) == (1, 0)


def test_what_fires_is_resolved_when_it_is_switched_off(world: World, acme: TenantScope) -> None:
    made = world.alerts.create_alert(acme, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000)))
    world.age = 5000
    world.watch()
    off = world.alerts.change_alert(acme, made.id, AlertChange(enabled=False))
    assert (off.state, world.watch(), events(acme, made.id)) == ("ok", 0, [("firing", False), ("resolved", False)])
    world.alerts.change_alert(acme, made.id, AlertChange(enabled=True))
    assert (world.watch(), len(events(acme, made.id))) == (1, 3)


def test_a_rate_says_nothing_of_a_few(world: World, acme: TenantScope) -> None:
    rate = Condition("failure_rate", process="intake", above=50, window_ms=15 * MINUTE, at_least=4)
    made = world.alerts.create_alert(acme, AlertSpec("Rate", rate))
    fail(acme, count=3)
    assert world.watch() == 0
    fail(acme)
    assert world.watch() == 1
    assert world.alerts.evaluate(acme, made).text == "100 % of 4 executions of intake failed within 15m, at most 50 % allowed"


def test_slow_executions_fire(world: World, acme: TenantScope) -> None:
    slow = Condition("duration", process="intake", longer_than_ms=2000, window_ms=15 * MINUTE)
    world.alerts.create_alert(acme, AlertSpec("Slow", slow))
    assert world.watch() == 0
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 1000))
    assert world.watch() == 0
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 9000))
    assert world.watch() == 1


@BOTH
def test_a_group_of_failures_is_counted_by_itself(world: World, acme: TenantScope, ahead: list[int]) -> None:
    failure = Failure("intake", "exe_1", "push", "connector", "connector_failed", "no answer")
    group = db.write(lambda: failures.record_failure(acme, failure))
    made = world.alerts.create_alert(acme, AlertSpec("Group", Condition("failures", failure=group, above=1, window_ms=15 * MINUTE)))
    assert world.watch() == 0
    db.write(lambda: failures.record_failure(acme, replace(failure, execution_id="exe_2")))
    assert world.watch() == 1
    assert "2 failures of the group" in world.alerts.evaluate(acme, made).text
    ahead[0] += 20 * MINUTE
    assert world.watch() == 1


def test_a_process_that_nobody_starts_is_missed_from_the_alert_on(world: World, acme: TenantScope, ahead: list[int]) -> None:
    nightly = Condition("no_execution", process="nightly", window_ms=DAY)
    world.alerts.create_alert(acme, AlertSpec("Nightly", nightly))
    assert world.watch() == 0
    ahead[0] += DAY + MINUTE
    assert world.watch() == 1
    world.last = clock.now_ms()
    assert world.watch() == 1


def test_what_does_not_answer_and_what_expires_fires(world: World, acme: TenantScope) -> None:
    world.alerts.create_alert(acme, AlertSpec("ERP", Condition("integration_failing", integration="erp")))
    ending = world.alerts.create_alert(acme, AlertSpec("Ends", Condition("expiring", window_ms=14 * DAY)))
    world.silent = ["mail"]
    assert world.watch() == 0
    world.silent, world.ending = ["erp", "mail"], [f"key {n}" for n in range(7)]
    assert world.watch() == 2
    assert world.alerts.evaluate(acme, ending).text.endswith("key 4 and 2 more")


WRONG = (
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


def test_a_condition_that_makes_no_sense_is_refused(world: World, acme: TenantScope) -> None:
    for condition, pointer in WRONG:
        with pytest.raises(ValidationFailed) as refused:
            world.alerts.create_alert(acme, AlertSpec("Wrong", condition))
        assert [detail.pointer for detail in refused.value.details] == [pointer]


def test_an_alert_does_nothing_its_author_may_not_do(world: World, acme: TenantScope) -> None:
    waits = Condition("queue_age", longer_than_ms=1000)
    for action in (PROCESS, LETTER, Action("webhook")):
        with pytest.raises(ScopeMissing):
            world.alerts.create_alert(replace(acme, scopes=frozenset({"processflow.write"})), AlertSpec("Waits", waits, [action]))
    everything = replace(acme, scopes=frozenset({"processflow.execute"}))
    made = world.alerts.create_alert(everything, AlertSpec("Waits", waits, [PROCESS]))
    another = AlertChange(condition=Condition("expiring", window_ms=DAY))
    with pytest.raises(ScopeMissing):
        world.alerts.change_alert(replace(acme, scopes=frozenset()), made.id, another)


def test_alerts_of_others_are_not_there(world: World, acme: TenantScope, other: TenantScope) -> None:
    made = world.alerts.create_alert(acme, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000)))
    for verb in (world.alerts.get_alert, world.alerts.delete_alert, world.alerts.send_test):
        with pytest.raises(NotFound):
            verb(other, made.id)
    with pytest.raises(Conflict):
        world.alerts.send_test(acme, made.id)
    world.alerts.delete_alert(acme, made.id)
    assert world.alerts.list_alerts(acme, PageRequest()).items == []
    told = audit.list_entries(acme, audit.AuditFilter(subject=made.id), PageRequest()).items
    assert [entry.action for entry in told] == ["alert.delete", "alert.create"]


def test_a_test_is_told_and_old_turns_go(world: World, acme: TenantScope, ahead: list[int]) -> None:
    everything = replace(acme, scopes=frozenset({"processflow.execute"}))
    made = world.alerts.create_alert(everything, AlertSpec("Waits", Condition("queue_age", longer_than_ms=1000), [PROCESS]))
    event = world.alerts.send_test(everything, made.id)
    assert (world.tell(), world.told) == (1, [("process", f"alert/{event.id}")])
    world.age = 5000
    assert (world.watch(), events(acme, made.id)) == (1, [("test", False), ("firing", False)])
    assert purge(clock.now_ms() + 1) == 2


def test_every_kind_is_said_in_a_sentence() -> None:
    assert describe(FAILURES) == "more than 1 failure of intake within 15m"
    assert describe(Condition("expiring", window_ms=14 * DAY)) == "an API key or a certificate expires within 14d"


def test_a_disk_that_fills_up_is_told_in_percent(world: World, acme: TenantScope) -> None:
    made = world.alerts.create_alert(acme, AlertSpec("Disk", Condition("disk_full", above=90)))
    assert (world.watch(), describe(Condition("disk_full", above=90))) == (0, "more than 90 % of the appliance's disk are in use")
    world.used = 90.04
    assert world.watch() == 1
    (event,) = world.alerts.list_events(acme, made.id, PageRequest()).items
    assert event.text == "90 % of the appliance's disk are in use, at most 90 % allowed"
    with pytest.raises(ValidationFailed):
        world.alerts.create_alert(acme, AlertSpec("Disk", Condition("disk_full", above=100)))
