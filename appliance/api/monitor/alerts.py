"""/api/v1/logs/alerts: alerts, whose actions run once when a condition fires and once when it resolves."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.pages import Page
from appliance.monitor.alerts import (
    Action,
    AlertChange,
    AlertEventRow,
    AlertRow,
    AlertSpec,
    Condition,
    actions_of,
    condition_of,
    conditions,
    describe,
    format_duration,
)
from appliance.monitor.alerts import Kind as ActionKind

Name = Annotated[str, Field(min_length=1, max_length=200)]
Duration = Annotated[str, Field(max_length=20, description="Such as 30s, 15m, 48h or 30d.")]
Time = Annotated[str, Field(max_length=40, description="RFC 3339 time.")]


class AlertConditionBody(Body):
    """The condition to watch; the members each `kind` needs are documented with alerts and named in the error if missing."""

    kind: conditions.Kind
    process: Name | None = None
    failure: Annotated[Name | None, Field(description="A group of failures, by its id.")] = None
    integration: Name | None = None
    above: Annotated[float | None, Field(description="A count of failures, or a percentage for failure_rate.")] = None
    longer_than: Duration | None = None
    window: Annotated[Duration | None, Field(description="The period to look back at; for `expiring` the period ahead.")] = None
    at_least: Annotated[int | None, Field(description="The fewest executions to compute a rate from; default 10.")] = None

    @property
    def condition(self) -> Condition:
        return Condition(
            self.kind, self.process, self.failure, self.integration, self.above,
            _parse_duration(self.longer_than, "/condition/longer_than"), _parse_duration(self.window, "/condition/window"),
            self.at_least,
        )  # fmt: skip


class AlertActionBody(Body):
    """What happens when an alert fires, repeats or resolves.

    `email` is sent through `integration` to `members` (sign-in names or `role:<least role>`; default: owners). `webhook` notifies
    the webhook with this id, or all that subscribe to `alert.firing` and `alert.resolved`. `process` is started with the input
    `{alert: {…}}`.
    """

    kind: ActionKind
    integration: Name | None = None
    members: list[Name] = Field(default_factory=list, max_length=20)
    webhook: Name | None = None
    process: Name | None = None

    @property
    def action(self) -> Action:
        return Action(self.kind, self.integration, tuple(self.members), self.webhook, self.process)


Actions = Annotated[list[AlertActionBody], Field(max_length=10)]


class CreateAlert(Body):
    """`for` is how long the condition must hold before the alert fires, `repeat` the interval of reminders (`0s`: none)."""

    name: Name
    condition: AlertConditionBody
    actions: list[AlertActionBody] = Field(default_factory=list, max_length=10)
    for_: Annotated[Duration, Field(alias="for")] = "0s"
    repeat: Duration = "0s"


class ChangeAlert(Body):
    """Members that are left out stay unchanged; `silenced_until: null` ends a silence. A new condition resets the alert."""

    name: Name | None = None
    condition: AlertConditionBody | None = None
    actions: Actions | None = None
    for_: Annotated[Duration | None, Field(alias="for")] = None
    repeat: Duration | None = None
    enabled: bool | None = None
    silenced_until: Time | None = None


class AlertView(View):
    """`now` is the condition's current finding; `problem` says why its last evaluation failed."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    id: str
    name: str
    condition: dict[str, Any]
    says: str
    actions: list[dict[str, Any]]
    for_: Annotated[str, Field(alias="for")]
    repeat: str
    enabled: bool
    silenced_until: str | None = None
    state: Literal["ok", "pending", "firing"]
    since: str
    now: str
    problem: str | None = None
    created_at: str
    created_by: str
    updated_at: str


class AlertEventView(View):
    """An event of an alert. `told_at` is absent until every recipient has been notified; `problems` lists failed notifications."""

    id: str
    turn: Literal["firing", "repeated", "resolved", "test"]
    at: str
    text: str
    silenced: bool
    told_at: str | None = None
    problems: list[str]


def _parse_duration(text: str | None, pointer: str) -> int | None:
    return None if text is None else clock.parse_duration(text, pointer=pointer)


def _condition_view(condition: Condition) -> dict[str, Any]:
    """A condition as requests write it, with durations such as `15m`."""
    members = condition.members()
    for stored, name in conditions.EXTERNAL_NAMES.items():
        if stored in members:
            members[name] = format_duration(members.pop(stored))
    return members


def _view(call: Call, row: AlertRow) -> AlertView:
    condition = condition_of(row)
    members = {
        "id": row.id, "name": row.name, "condition": _condition_view(condition), "says": describe(condition),
        "actions": [each.to_stored() for each in actions_of(row)], "for": format_duration(row.for_ms) if row.for_ms else "0s",
        "repeat": format_duration(row.repeat_ms) if row.repeat_ms else "0s", "enabled": row.enabled,
        "silenced_until": clock.optional_rfc3339(row.silenced_until), "state": row.state, "since": clock.rfc3339(row.since),
        "now": call.services.alerts.evaluate(call.scope, row).text, "problem": row.problem,
        "created_at": clock.rfc3339(row.created_at), "created_by": row.created_by, "updated_at": clock.rfc3339(row.updated_at),
    }  # fmt: skip
    return AlertView(**members)


def _event_view(row: AlertEventRow) -> AlertEventView:
    return AlertEventView(
        id=row.id, turn=row.kind, at=clock.rfc3339(row.at), text=row.text, silenced=row.silenced,
        told_at=clock.optional_rfc3339(row.told_at), problems=row.problems,
    )  # fmt: skip


@route("GET", "/logs/alerts", scope="logs.read", returns=AlertView, listed=True)
def list_alerts(call: Call) -> Page[AlertView]:
    """List the tenant's alerts by name, each with its current finding."""
    return call.services.alerts.list_alerts(call.scope, call.query.page).map(lambda row: _view(call, row))


@route("POST", "/logs/alerts", scope="processflow.write", body=CreateAlert, returns=AlertView, status=201)
def create_alert(call: Call) -> Answer:
    """Create an alert, which watches a condition and runs its `actions` when the condition fires and when it resolves.

    An action `email` also needs the scope `integrations.execute`, `webhook` `integrations.write`, and `process`
    `processflow.execute`. Each event is notified once; an alert without actions still records its history.
    """
    body: CreateAlert = call.body
    spec = AlertSpec(
        body.name, body.condition.condition, [each.action for each in body.actions],
        clock.parse_duration(body.for_, pointer="/for"), clock.parse_duration(body.repeat, pointer="/repeat"),
    )  # fmt: skip
    row = call.services.alerts.create_alert(call.scope, spec)
    return Answer(_view(call, row), headers={"Location": f"/api/v1/logs/alerts/{row.id}"})


@route("GET", "/logs/alerts/{alert_id}", scope="logs.read", returns=AlertView)
def get_alert(call: Call, alert_id: str) -> AlertView:
    """Show an alert with its current finding."""
    return _view(call, call.services.alerts.get_alert(call.scope, alert_id))


@route("PATCH", "/logs/alerts/{alert_id}", scope="processflow.write", body=ChangeAlert, returns=AlertView)
def change_alert(call: Call, alert_id: str) -> AlertView:
    """Change, silence, disable or enable an alert."""
    body: ChangeAlert = call.body
    silenced_until = None
    if "silenced_until" in body.model_fields_set:
        until = body.silenced_until
        silenced_until = 0 if until is None else clock.parse_rfc3339(until, pointer="/silenced_until")
    change = AlertChange(
        body.name, None if body.condition is None else body.condition.condition,
        None if body.actions is None else [each.action for each in body.actions],
        _parse_duration(body.for_, "/for"), _parse_duration(body.repeat, "/repeat"), body.enabled, silenced_until,
    )  # fmt: skip
    return _view(call, call.services.alerts.change_alert(call.scope, alert_id, change))


@route("DELETE", "/logs/alerts/{alert_id}", scope="processflow.write", returns=DeletedView)
def delete_alert(call: Call, alert_id: str) -> DeletedView:
    """Delete an alert with its history."""
    call.services.alerts.delete_alert(call.scope, alert_id)
    return DeletedView(deleted=alert_id)


@route("GET", "/logs/alerts/{alert_id}/history", scope="logs.read", query=ListQuery, returns=AlertEventView, listed=True)
def list_alert_events(call: Call, alert_id: str) -> Page[AlertEventView]:
    """List the events of an alert, newest first."""
    return call.services.alerts.list_events(call.scope, alert_id, call.query.page).map(_event_view)


@route("POST", "/logs/alerts/{alert_id}/test", scope="processflow.write", returns=AlertEventView, status=202)
def test_alert(call: Call, alert_id: str) -> AlertEventView:
    """Run all actions of an alert once, marked as a test."""
    return _event_view(call.services.alerts.send_test(call.scope, alert_id))
