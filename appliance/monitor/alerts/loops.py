"""The two loops of alerts: one evaluates every condition and records events, the other sends pending notifications.

The alert's revision ensures that an event is recorded once, whichever process detects it.  Webhook messages are written in the
same transaction; members and processes are notified from the stored event, under its id, until that succeeds.
"""

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.database.changes import zero_if_any
from appliance.core.errors import ApplianceError, Draining, Overloaded, StorageFull
from appliance.core.leases.open_tenants import FENCED
from appliance.core.scope import TenantScope
from appliance.monitor import webhooks
from appliance.monitor.logs import Line, write_lines
from appliance.monitor.storable import storable_text

from . import recipients as hearing
from .actions import Action, Notice, Notifier, load_action
from .conditions import Condition, describe
from .measurements import DataSources, measure
from .models import AlertEventRow, AlertRow
from .recipients import Recipients
from .transitions import AlertState, Timing, Transition, Turn, next_transition

log = logging.getLogger(__name__)
BATCH_SIZE = 100
_ENABLED = f"SELECT tenant_id, id FROM alert WHERE enabled = ? AND tenant_id NOT IN ({FENCED}) ORDER BY tenant_id, id"  # noqa: S608
_PENDING = f"told_at IS NULL AND tenant_id NOT IN ({FENCED})"
_TEXT_BYTES = 2 << 10
_LATER = (Draining, Overloaded, StorageFull)


def condition_of(row: AlertRow) -> Condition:
    return Condition(**row.condition)


def actions_of(row: AlertRow) -> list[Action]:
    return [load_action(each) for each in row.actions]


def evaluate_all(facts: DataSources) -> int:
    """Evaluate every enabled alert of every tenant; returns the number of recorded events."""
    rows = db.rows(_ENABLED, (True,))
    events = 0
    for tenant_id, alert_id in rows:
        scope = TenantScope(str(tenant_id), "system")
        try:
            events += evaluate_alert(scope, str(alert_id), facts)
        except Exception:  # a failing alert must not prevent the others
            log.exception("the alert %s could not be evaluated; it will be retried", alert_id)
    return events


def evaluate_alert(scope: TenantScope, alert_id: str, facts: DataSources) -> bool:
    """Evaluate one alert and record the result; returns whether this call recorded an event."""
    row = scope.find(AlertRow, id=alert_id)
    if row is None or not row.enabled:
        return False
    try:
        finding = measure(scope, condition_of(row), facts, row.armed_at)
    except ApplianceError as error:
        if row.problem != error.message:
            db.write(partial(_record_problem, scope, row, error.message))
        return False
    state = AlertState(row.state, row.since, bool(row.told), row.next_notice_at)
    timing = Timing(row.for_ms, row.repeat_ms, row.silenced_until)
    transition = next_transition(state, finding.holds, clock.now_ms(), timing)
    if transition.state == state and transition.event is None and row.problem is None:
        return False
    return db.write(partial(_store_transition, scope, row, transition, finding.text))


def _store_transition(scope: TenantScope, row: AlertRow, transition: Transition, text: str) -> bool:
    """Inside a write: store the transition and its event, unless the alert has changed since it was read."""
    state = transition.state
    changes = {
        "state": state.state, "since": state.since, "told": state.is_notified, "next_notice_at": state.next_notice_at,
        "problem": None, "turn": row.turn + (transition.event is not None), "revision": row.revision + 1,
    }  # fmt: skip
    unchanged = (AlertRow.id == row.id) & (AlertRow.revision == row.revision)
    if not scope.update(AlertRow, **changes).where(unchanged).execute() or transition.event is None:
        return False
    add_event(scope, row, transition.event, text, silenced=transition.silenced)
    return True


def _record_problem(scope: TenantScope, row: AlertRow, message: str) -> None:
    changes = {"problem": storable_text(message, _TEXT_BYTES), "revision": row.revision + 1}
    scope.update(AlertRow, **changes).where((AlertRow.id == row.id) & (AlertRow.revision == row.revision)).execute()


def add_event(scope: TenantScope, row: AlertRow, turn: Turn, text: str, *, silenced: bool) -> str:
    """Inside a write: record the next event of an alert and queue its webhook messages; returns the event's id."""
    now, event_id = clock.now_ms(), ids.new("ale")
    recipients = hearing.notified_recipients(scope, row) if turn == "resolved" else hearing.named_recipients(row)
    text = storable_text(text, _TEXT_BYTES)
    if not silenced:
        recipients = _queue_webhooks(scope, recipients, _notice(row, event_id, turn, text, now))
    scope.insert(
        AlertEventRow, id=event_id, alert_id=row.id, turn=row.turn + 1, kind=turn, at=now, text=text, silenced=silenced,
        told_at=now if silenced or not recipients.needs_notifying else None, problems=[],
        told_to=None if silenced else recipients.to_stored(),
    )  # fmt: skip
    if turn != "test":
        level = "info" if turn == "resolved" else "warn"
        fields = {"alert_id": row.id, "turn": turn, "silenced": silenced}
        write_lines(scope, [Line(now, level, "alert", f"{row.name}: {turn}: {text}", fields)])
    return event_id


def _queue_webhooks(scope: TenantScope, recipients: Recipients, notice: Notice) -> Recipients:
    """Inside a write: queue webhook messages; returns the recipients, with the ids of subscribed webhooks."""
    event = "alert.resolved" if notice.turn == "resolved" else "alert.firing"
    for only in {each.webhook for each in recipients.actions if each.kind == "webhook"}:
        webhooks.emit(scope, event, notice.data, only=only)
    if recipients.webhook_ids is not None and not recipients.webhook_ids:
        return recipients
    return replace(recipients, webhook_ids=frozenset(webhooks.emit(scope, event, notice.data, among=recipients.webhook_ids)))


def _notice(row: AlertRow, event_id: str, turn: Turn, text: str, at: int) -> Notice:
    return Notice(
        key=f"alert/{event_id}", alert_id=row.id, name=row.name, turn=turn, text=text, condition=describe(condition_of(row)),
        at=at,
    )


def send_due(notifier: Notifier) -> int:
    """Send pending notifications to members and processes, oldest first; returns the number of events handled."""
    pending = db.rows(f"SELECT tenant_id, id FROM alert_event WHERE {_PENDING} ORDER BY id LIMIT ?", (BATCH_SIZE,))  # noqa: S608
    sent = 0
    for tenant_id, event_id in pending:
        try:
            sent += _notify(TenantScope(str(tenant_id), "system"), str(event_id), notifier)
        except _LATER as error:
            log.warning("not everyone was notified of the alert event %s; it will be retried: %s", event_id, error.message)
    return sent


def next_due() -> int | None:
    """0, a time in the past, while a notification is pending, None otherwise."""
    return zero_if_any(f"SELECT 1 FROM alert_event WHERE {_PENDING}")  # noqa: S608


def _notify(scope: TenantScope, event_id: str, notifier: Notifier) -> int:
    """Notify the recipients of one event; the notice's key prevents duplicates if this is interrupted and repeated."""
    event = scope.find(AlertEventRow, id=event_id)
    row = scope.find(AlertRow, id=event.alert_id) if event is not None else None
    if event is None or row is None or event.told_at is not None:
        return 0
    notice = _notice(row, event.id, event.kind, event.text, event.at)
    recipients = hearing.named_recipients(row) if event.told_to is None else hearing.load_recipients(event.told_to)
    problems: list[str] = []
    notified: list[Action] = []
    for action in recipients.actions:
        if action.kind == "email":
            emails = notifier.send_emails(scope, action, notice)
            problems += emails.problems
            notified += [replace(action, members=tuple(emails.recipients))] if emails.recipients else []
            continue
        notified.append(action)
        if action.kind == "process":
            problems += notifier.start_process(scope, action, notice)
    notified_recipients = replace(recipients, actions=tuple(notified)).to_stored()
    db.write(
        partial(
            _record_notified, scope, row, event.id, notified_recipients, [storable_text(each, _TEXT_BYTES) for each in problems]
        )
    )
    return 1


def _record_notified(
    scope: TenantScope, row: AlertRow, event_id: str, notified_recipients: dict[str, Any], problems: list[str]
) -> None:
    is_pending = (AlertEventRow.id == event_id) & AlertEventRow.told_at.is_null()
    changes = {"told_at": clock.now_ms(), "problems": problems, "told_to": notified_recipients}
    changed = scope.update(AlertEventRow, **changes).where(is_pending).execute()
    if changed and problems:
        lines = [Line(clock.now_ms(), "error", "alert", f"{row.name}: {each}", {"alert_id": row.id}) for each in problems]
        write_lines(scope, lines)
