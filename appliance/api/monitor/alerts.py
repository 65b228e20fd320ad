"""/api/v1/logs/alerts: alerts, whose actions run once when a condition fires and once when it resolves."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Answer, Body, Call, ListQuery, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import Conflict
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

    kind: Annotated[conditions.Kind, Field(description=(
        "What to measure, such as failed executions, their rate, the age of the queue, a quota or the disk."
    ))]
    process: Annotated[
        Name | None, Field(description="Only executions of this process, 1 to 200 characters; absent for all.")
    ] = None
    failure: Annotated[
        Name | None, Field(description="Only failures of this group; `fail_…`, 1 to 200 characters. Absent for all.")
    ] = None
    integration: Annotated[Name | None, Field(description="The slug of the integration to watch, 1 to 200 characters.")] = None
    quota: Annotated[
        Name | None, Field(description="The quota to watch, such as `storage`, 1 to 200 characters; absent for any.")
    ] = None
    above: Annotated[
        float | None, Field(description="The value that must be exceeded: a count of failures, or a percentage for other kinds.")
    ] = None
    longer_than: Annotated[
        Duration | None, Field(description="The duration or age that must be exceeded, such as `30s` or `15m`.")
    ] = None
    window: Annotated[
        Duration | None, Field(description="The period to look back at, for `expiring` the period ahead; at most `30d`.")
    ] = None
    at_least: Annotated[int | None, Field(description="The fewest executions to compute a rate from; default 10.")] = None

    @property
    def condition(self) -> Condition:
        return Condition(
            kind=self.kind, process=self.process, failure=self.failure, integration=self.integration,
            quota=self.quota, above=self.above,
            longer_than_ms=_parse_duration(self.longer_than, "/condition/longer_than"),
            window_ms=_parse_duration(self.window, "/condition/window"), at_least=self.at_least,
        )  # fmt: skip


class AlertActionBody(Body):
    """What happens when an alert fires, repeats or resolves.

    `email` is sent through `integration` to `members` (sign-in names or `role:<least role>`; default: owners). `webhook` notifies
    the webhook with this id, or all that subscribe to `alert.firing` and `alert.resolved`. `process` is started with the input
    `{alert: {…}}`.
    """

    kind: Annotated[ActionKind, Field(description="What runs: an email, a message to webhooks, or a process.")]
    integration: Annotated[
        Name | None, Field(description="The slug of the integration that sends the email; for `email` only.")
    ] = None
    members: Annotated[
        list[Name], Field(description="Who gets the email, at most 20: sign-in names or `role:<least role>`. Default: the owners.")
    ] = Field(default_factory=list, max_length=20)
    webhook: Annotated[
        Name | None, Field(description="The webhook to notify; `whk_…`. Absent to notify all that subscribe to alerts.")
    ] = None
    process: Annotated[Name | None, Field(description="The process to start; for `process` only.")] = None

    @property
    def action(self) -> Action:
        return Action(self.kind, self.integration, tuple(self.members), self.webhook, self.process)


Actions = Annotated[list[AlertActionBody], Field(max_length=10)]


class CreateAlert(Body):
    """`for` is how long the condition must hold before the alert fires, `repeat` the interval of reminders (`0s`: none)."""

    name: Annotated[Name, Field(description="What people call the alert, 1 to 200 characters.")]
    condition: Annotated[AlertConditionBody, Field(description="What must hold for the alert to fire.")]
    actions: Annotated[list[AlertActionBody], Field(description=(
        "What runs when it fires, repeats and resolves, at most 10; empty to record its history only."
    ))] = Field(default_factory=list, max_length=10)
    for_: Annotated[Duration, Field(alias="for", description=(
        "How long the condition must hold before the alert fires, such as `5m`; `0s` to fire at once."
    ))] = "0s"
    repeat: Annotated[Duration, Field(description="The interval of reminders while it fires, such as `4h`; `0s` for none.")] = "0s"


class ChangeAlert(Body):
    """Members that are left out stay unchanged; `silenced_until: null` ends a silence. A new condition resets the alert."""

    name: Annotated[Name | None, Field(description="The new name, 1 to 200 characters; absent to keep it.")] = None
    condition: Annotated[
        AlertConditionBody | None, Field(description="The new condition, which resets the alert; absent to keep it.")
    ] = None
    actions: Annotated[
        Actions | None, Field(description="The actions that replace the present ones, at most 10; absent to keep them.")
    ] = None
    for_: Annotated[Duration | None, Field(alias="for", description=(
        "How long the condition must hold before the alert fires, such as `5m`; absent to keep it."
    ))] = None
    repeat: Annotated[
        Duration | None, Field(description="The interval of reminders while it fires, `0s` for none; absent to keep it.")
    ] = None
    enabled: Annotated[
        bool | None, Field(description="False to stop evaluating the alert, true to evaluate it again; absent to keep it.")
    ] = None
    silenced_until: Annotated[
        Time | None, Field(description="RFC 3339 time before which nobody is notified; null ends a silence, absent keeps it.")
    ] = None


class AlertView(View):
    """`now` is the condition's current finding; `problem` says why its last evaluation failed."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    id: Annotated[str, Field(description="Identifies the alert; `alr_…`.")]
    name: Annotated[str, Field(description="What people call the alert.")]
    condition: Annotated[
        dict[str, Any], Field(description="What must hold for the alert to fire, with members as in the request that set it.")
    ]
    says: Annotated[str, Field(description="The condition as an English sentence.")]
    actions: Annotated[list[dict[str, Any]], Field(description=(
        "What runs when it fires, repeats and resolves; empty if only its history is recorded."
    ))]
    for_: Annotated[str, Field(alias="for", description=(
        "How long the condition must hold before the alert fires, such as `5m`; `0s` for at once."
    ))]
    repeat: Annotated[str, Field(description="The interval of reminders while it fires, such as `4h`; `0s` for none.")]
    enabled: Annotated[bool, Field(description="True while the condition is evaluated.")]
    silenced_until: Annotated[
        str | None, Field(description="Until when nobody is notified; RFC 3339, UTC. Absent without a silence.")
    ] = None
    state: Annotated[Literal["ok", "pending", "firing"], Field(description=(
        "Whether the condition does not hold (`ok`), does not hold long enough yet (`pending`) or has fired."
    ))]
    since: Annotated[str, Field(description="When this state began; RFC 3339, UTC.")]
    now: Annotated[str, Field(description="What the condition measures at present, as an English sentence.")]
    problem: Annotated[str | None, Field(description="Why the last evaluation failed; absent if it succeeded.")] = None
    created_at: Annotated[str, Field(description="When the alert was created; RFC 3339, UTC.")]
    created_by: Annotated[str, Field(description="The actor that created the alert.")]
    updated_at: Annotated[str, Field(description="When its configuration last changed; RFC 3339, UTC.")]


class AlertEventView(View):
    """An event of an alert. `told_at` is absent until every recipient has been notified; `problems` lists failed notifications."""

    id: Annotated[str, Field(description="Identifies the event.")]
    turn: Annotated[Literal["firing", "repeated", "resolved", "test"], Field(description=(
        "What happened: the alert fired, a reminder was due, it resolved, or someone tested its actions."
    ))]
    at: Annotated[str, Field(description="When it happened; RFC 3339, UTC.")]
    text: Annotated[str, Field(description="What the condition measured then, as an English sentence.")]
    silenced: Annotated[bool, Field(description="True if nobody was notified, because the alert was silenced.")]
    told_at: Annotated[
        str | None, Field(description="When every recipient had been notified; RFC 3339, UTC. Absent before.")
    ] = None
    problems: Annotated[list[str], Field(description="The notifications that failed, each with the reason; empty if none did.")]


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
        "now": call.services.monitor.alerts.evaluate(call.scope, row).text, "problem": row.problem,
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
    """List the alerts of the tenant.

    Sorted by name, each with its current finding.
    """
    return call.services.monitor.alerts.list_alerts(call.scope, call.query.page).map(lambda row: _view(call, row))


@route("POST", "/logs/alerts", scope="processflow.write", body=CreateAlert, returns=AlertView, status=201, errors=(Conflict,))
def create_alert(call: Call) -> Answer:
    """Create an alert.

    It watches a condition and runs its `actions` when the condition fires and when it resolves.

    An action `email` also needs the scope `integrations.execute`, `webhook` `integrations.write`, and `process`
    `processflow.execute`. Each event is notified once; an alert without actions still records its history.
    """
    body: CreateAlert = call.body
    spec = AlertSpec(
        body.name, body.condition.condition, [each.action for each in body.actions],
        clock.parse_duration(body.for_, pointer="/for"), clock.parse_duration(body.repeat, pointer="/repeat"),
    )  # fmt: skip
    row = call.services.monitor.alerts.create_alert(call.scope, spec)
    return Answer(_view(call, row), headers={"Location": f"/api/v1/logs/alerts/{row.id}"})


@route("GET", "/logs/alerts/{alert_id}", scope="logs.read", returns=AlertView)
def get_alert(call: Call, alert_id: str) -> AlertView:
    """Show an alert with its current finding.

    The finding is what its condition measures at present, as a sentence; `state` says whether that makes it fire.
    """
    return _view(call, call.services.monitor.alerts.get_alert(call.scope, alert_id))


@route("PATCH", "/logs/alerts/{alert_id}", scope="processflow.write", body=ChangeAlert, returns=AlertView)
def change_alert(call: Call, alert_id: str) -> AlertView:
    """Change, silence, disable or enable an alert.

    Members that are left out keep their values. While it is silenced its history goes on, but nobody is notified.
    """
    body: ChangeAlert = call.body
    silenced_until = None
    if "silenced_until" in body.model_fields_set:
        until = body.silenced_until
        silenced_until = 0 if until is None else clock.parse_rfc3339(until, pointer="/silenced_until")
    change = AlertChange(
        name=body.name, condition=None if body.condition is None else body.condition.condition,
        actions=None if body.actions is None else [each.action for each in body.actions],
        for_ms=_parse_duration(body.for_, "/for"), repeat_ms=_parse_duration(body.repeat, "/repeat"), enabled=body.enabled,
        silenced_until=silenced_until,
    )  # fmt: skip
    return _view(call, call.services.monitor.alerts.change_alert(call.scope, alert_id, change))


@route("DELETE", "/logs/alerts/{alert_id}", scope="processflow.write", returns=DeletedView)
def delete_alert(call: Call, alert_id: str) -> DeletedView:
    """Delete an alert with its history.

    Notifications that have not been sent yet are dropped.
    """
    call.services.monitor.alerts.delete_alert(call.scope, alert_id)
    return DeletedView(deleted=alert_id)


@route("GET", "/logs/alerts/{alert_id}/history", scope="logs.read", query=ListQuery, returns=AlertEventView, listed=True)
def list_alert_events(call: Call, alert_id: str) -> Page[AlertEventView]:
    """List the events of an alert, newest first.

    It fired, a reminder was due, it resolved, or someone tested it; `problems` has notifications that failed.
    """
    return call.services.monitor.alerts.list_events(call.scope, alert_id, call.query.page).map(_event_view)


@route("POST", "/logs/alerts/{alert_id}/test", scope="processflow.write", returns=AlertEventView, status=202, errors=(Conflict,))
def test_alert(call: Call, alert_id: str) -> AlertEventView:
    """Run the actions of an alert once.

    Recipients see that it is a test; it is sent whatever the alert's state, and while it is silenced too.
    """
    return _event_view(call.services.monitor.alerts.send_test(call.scope, alert_id))
