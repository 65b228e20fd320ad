"""Manages alerts.  Every function takes a TenantScope first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.monitor.failures import get_failure
from appliance.monitor.retention import delete_older

from .actions import Action, Notifier, validate_actions
from .conditions import MAX_WINDOW, MINUTE, Condition, validate_condition
from .loops import actions_of, add_event, condition_of
from .measurements import DataSources, Finding, measure
from .models import AlertEventRow, AlertRow

__all__ = ["AlertChange", "AlertEventRow", "AlertRow", "AlertSpec", "Alerts"]

MAX_ALERTS = 100
MAX_NAME = 200
MIN_REPEAT = 5 * MINUTE
_AUDITED = ("name", "condition", "enabled", "silenced_until")


@dataclass(frozen=True)
class AlertSpec:
    """Properties of a new alert: `for_ms` is how long the condition must hold, `repeat_ms` the reminder interval (0: none)."""

    name: str
    condition: Condition
    actions: Sequence[Action] = ()
    for_ms: int = 0
    repeat_ms: int = 0


@dataclass(frozen=True)
class AlertChange:
    """Changes to an alert; None leaves a property unchanged.  `silenced_until` 0 ends a silence."""

    name: str | None = None
    condition: Condition | None = None
    actions: Sequence[Action] | None = None
    for_ms: int | None = None
    repeat_ms: int | None = None
    enabled: bool | None = None
    silenced_until: int | None = None


class Alerts:
    """Operations on alerts; `facts` and `reach` connect them to the rest of the appliance."""

    def __init__(self, facts: DataSources, notifier: Notifier) -> None:
        self.facts, self.notifier = facts, notifier

    def create_alert(self, scope: TenantScope, spec: AlertSpec) -> AlertRow:
        """Create an alert, which is evaluated from now on.  ValidationFailed, ScopeMissing, Conflict."""
        self._check(scope, spec)
        alert_id, now = ids.new("alr"), clock.now_ms()

        def insert() -> AlertRow:
            if scope.select(AlertRow).count() >= MAX_ALERTS:
                raise Conflict(Sentence(
                    "a tenant can have at most %(most_alerts)s alerts; delete one that is no longer needed", most_alerts=MAX_ALERTS
                ))
            scope.insert(
                AlertRow, id=alert_id, name=spec.name, condition=spec.condition.members(),
                actions=[each.to_stored() for each in spec.actions], for_ms=spec.for_ms, repeat_ms=spec.repeat_ms, enabled=True,
                silenced_until=None, state="ok", since=now, turn=0, told=False, next_notice_at=None, problem=None, armed_at=now,
                revision=1, created_at=now, created_by=scope.actor, updated_at=now,
            )  # fmt: skip
            audit.record(scope, "alert.create", alert_id, {"name": spec.name, "condition": spec.condition.members()})
            return scope.get(AlertRow, id=alert_id)

        return db.write(insert)

    def list_alerts(self, scope: TenantScope, page: PageRequest) -> Page[AlertRow]:
        """The tenant's alerts, by name."""
        return paginate(scope.select(AlertRow), page, {"name": AlertRow.name, "id": AlertRow.id}, default="name")

    def get_alert(self, scope: TenantScope, alert_id: str) -> AlertRow:
        """One alert; NotFound."""
        return scope.get(AlertRow, id=alert_id)

    def list_events(self, scope: TenantScope, alert_id: str, page: PageRequest) -> Page[AlertEventRow]:
        """The events of one alert, latest first; NotFound."""
        scope.get(AlertRow, id=alert_id)
        query = scope.select(AlertEventRow).where(AlertEventRow.alert_id == alert_id)
        return paginate(query, page, {"at": AlertEventRow.at, "id": AlertEventRow.id}, default="-at")

    def evaluate(self, scope: TenantScope, row: AlertRow) -> Finding:
        """Evaluate the alert's condition now, without any effect."""
        return measure(scope, condition_of(row), self.facts, row.armed_at)

    def change_alert(self, scope: TenantScope, alert_id: str, change: AlertChange) -> AlertRow:
        """Change, silence, enable or disable an alert.  A firing alert that is disabled or gets another condition is resolved.
        NotFound, and the errors of `create_alert`, except for deleted things it already names."""
        old = self.get_alert(scope, alert_id)
        if _changes_definition(change):  # silencing or disabling is allowed even if it names something deleted
            self._check(scope, _merge_change(old, change), old)
        now = clock.now_ms()

        def update() -> AlertRow:
            row = scope.get(AlertRow, id=alert_id)
            changes = _columns(change) | {"updated_at": now, "revision": row.revision + 1}
            begins_anew = change.condition is not None or (change.enabled is not None and change.enabled != row.enabled)
            if begins_anew:
                if row.state == "firing":
                    add_event(scope, row, "resolved", f"changed or disabled by {scope.actor}", silenced=not row.told)
                changes |= {
                    "state": "ok", "since": now, "told": False, "next_notice_at": None, "problem": None, "armed_at": now,
                    "turn": row.turn + (row.state == "firing"),
                }  # fmt: skip
            elif change.silenced_until is not None and row.state == "firing":
                changes["next_notice_at"] = _next_notice(row, change.silenced_until, now)
            scope.update(AlertRow, **changes).where(AlertRow.id == alert_id).execute()
            details: dict[str, Any] = {name: changes[name] for name in _AUDITED if name in changes}
            audit.record(scope, "alert.change", alert_id, details)
            return scope.get(AlertRow, id=alert_id)

        return db.write(update)

    def delete_alert(self, scope: TenantScope, alert_id: str) -> None:
        """Delete an alert with its history; pending notifications are dropped.  NotFound."""

        def delete() -> None:
            row = scope.get(AlertRow, id=alert_id)
            scope.delete(AlertRow).where(AlertRow.id == alert_id).execute()
            audit.record(scope, "alert.delete", alert_id, {"name": row.name})

        db.write(delete)

    def send_test(self, scope: TenantScope, alert_id: str) -> AlertEventRow:
        """Send a test notification to all recipients, regardless of state and silence.  NotFound, Conflict."""

        def add() -> AlertEventRow:
            row = scope.get(AlertRow, id=alert_id)
            if not row.actions:
                raise Conflict("this alert has no actions; add one first")
            event_id = add_event(scope, row, "test", "test notification", silenced=False)
            scope.update(AlertRow, turn=row.turn + 1, revision=row.revision + 1).where(AlertRow.id == alert_id).execute()
            audit.record(scope, "alert.test", alert_id)
            return scope.get(AlertEventRow, id=event_id)

        return db.write(add)

    def _check(self, scope: TenantScope, spec: AlertSpec, old: AlertRow | None = None) -> None:
        """Validate a spec; what the `old` alert already names may be deleted without preventing other changes."""
        if not 1 <= len(spec.name.strip()) <= MAX_NAME:
            raise ValidationFailed(
                Sentence("name must have 1 to %(longest_name)s characters", longest_name=MAX_NAME), pointer="/name"
            )
        validate_condition(spec.condition)
        if not 0 <= spec.for_ms <= MAX_WINDOW:
            raise ValidationFailed("for must be between 0s and 30d", pointer="/for")
        if spec.repeat_ms and not MIN_REPEAT <= spec.repeat_ms <= MAX_WINDOW:
            raise ValidationFailed("repeat must be between 5m and 30d, or 0s for never", pointer="/repeat")
        if spec.condition.failure is not None and (old is None or spec.condition.failure != condition_of(old).failure):
            try:
                get_failure(scope, spec.condition.failure)
            except NotFound as error:
                raise ValidationFailed(error.message, pointer="/condition/failure") from error
        validate_actions(scope, spec.actions, self.notifier, () if old is None else actions_of(old))


def purge(before_ms: int) -> int:
    """Delete every tenant's alert events from before `before_ms`; returns their number."""
    return delete_older("alert_event", "id", "at", before_ms)


def _changes_definition(change: AlertChange) -> bool:
    properties = (change.name, change.condition, change.actions, change.for_ms, change.repeat_ms)
    return bool(change.enabled) or any(each is not None for each in properties)


def _merge_change(row: AlertRow, change: AlertChange) -> AlertSpec:
    return AlertSpec(
        row.name if change.name is None else change.name,
        condition_of(row) if change.condition is None else change.condition,
        actions_of(row) if change.actions is None else change.actions,
        row.for_ms if change.for_ms is None else change.for_ms,
        row.repeat_ms if change.repeat_ms is None else change.repeat_ms,
    )


def _columns(change: AlertChange) -> dict[str, Any]:
    plain = ("name", "for_ms", "repeat_ms", "enabled")
    columns: dict[str, Any] = {name: value for name in plain if (value := getattr(change, name)) is not None}
    if change.condition is not None:
        columns["condition"] = change.condition.members()
    if change.actions is not None:
        columns["actions"] = [each.to_stored() for each in change.actions]
    if change.silenced_until is not None:
        columns["silenced_until"] = change.silenced_until or None
    return columns


def _next_notice(row: AlertRow, silenced_until: int, now: int) -> int | None:
    """When a firing alert notifies next; None if everyone was notified and there are no reminders."""
    if row.told and not row.repeat_ms:
        return None
    return max(silenced_until, row.next_notice_at or 0, now) if row.told else max(silenced_until, now)
