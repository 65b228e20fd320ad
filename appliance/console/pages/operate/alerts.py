"""Pages of alerts: the list with the current state of each, and the forms to create, change, silence and delete one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.console.pages.settings.quotas import TITLES
from appliance.core import clock
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.monitor.alerts import (
    EXTERNAL_NAMES,
    KINDS,
    MEMBERS,
    OWNERS,
    Action,
    AlertChange,
    AlertRow,
    AlertSpec,
    Condition,
    actions_of,
    condition_of,
    conditions,
    describe,
    format_duration,
)
from appliance.processes.definitions import versions

HERE = "/console/alerts"
SILENCES = {"1h": mark("an hour"), "8h": mark("8 hours"), "1d": mark("a day"), "7d": mark("a week")}
ROLES = {
    "owner": mark("owners"), "builder": mark("builders and owners"), "operator": mark("operators, builders and owners"),
    "viewer": mark("all members"),
}  # fmt: skip
_DURATIONS = ("window_ms", "longer_than_ms")
_NAMES = {"process", "failure", "integration", "quota"}


@dataclass(frozen=True)
class Row:
    """An alert in the list; `says` describes its condition, `now` is the current result of evaluating it."""

    alert: AlertRow
    says: str
    now: str
    is_silenced: bool


def _row(visit: Visit, alert: AlertRow) -> Row:
    silenced = alert.silenced_until is not None and alert.silenced_until > clock.now_ms()
    return Row(alert, describe(condition_of(alert)), visit.services.monitor.alerts.evaluate(visit.scope, alert).text, silenced)


@page("GET", "/alerts", scope="logs.read")
def list_alerts(visit: Visit) -> Answer:
    """The tenant's alerts by name, each with its current result."""
    result = visit.services.monitor.alerts.list_alerts(visit.scope, visit.page())
    return Page("alerts.html", {"rows": [_row(visit, each) for each in result.items], "next_cursor": result.next_cursor})


@page("GET", "/alerts/new", scope="processflow.write")
def new_alert(visit: Visit) -> Answer:
    """The form of a new alert of one kind; without a kind, the choice of kinds."""
    return _form(visit, {name: visit.request.args.get(name, "") for name in ("kind", *_NAMES)})


@page("POST", "/alerts", scope="processflow.write")
def create_alert(visit: Visit) -> Answer:
    """Create an alert."""
    try:
        alert = visit.services.monitor.alerts.create_alert(visit.scope, _spec(visit))
    except ApplianceError as problem:
        return _form(visit, {name: visit.request.field(name) for name in visit.request.form}, problem)
    return Redirect(f"{HERE}/{alert.id}")


@page("GET", "/alerts/<alert_id>", scope="logs.read")
def show_alert(visit: Visit, alert_id: str) -> Answer:
    """One alert: its current state, its history and the available actions."""
    return _alert_page(visit, alert_id)


def _alert_page(visit: Visit, alert_id: str, problem: ApplianceError | None = None) -> Page:
    alerts = visit.services.monitor.alerts
    row = alerts.get_alert(visit.scope, alert_id)
    events = alerts.list_events(visit.scope, alert_id, visit.page(limit=20))
    values = {
        "row": _row(visit, row), "events": events.items, "next_cursor": events.next_cursor, "problem": problem,
        "notifications": [_describe_action(visit, each) for each in actions_of(row)], "names": Names(visit), "silences": SILENCES,
        "fires_after": format_duration(row.for_ms) if row.for_ms else "",
        "repeat": format_duration(row.repeat_ms) if row.repeat_ms else "",
    }  # fmt: skip
    return Page("alert.html", values, problem.status if problem else 200)


def _describe_action(visit: Visit, action: Action) -> str:
    if action.kind == "email":
        roles = [name.removeprefix("role:") for name in action.members or ("role:owner",)]
        role_names = ", ".join(_(ROLES[role]) if role in ROLES else role for role in roles)
        return _("email through %(integration)s to %(roles)s", integration=action.integration, roles=role_names)
    if action.kind == "process":
        return _("starts the process %(process)s", process=action.process)
    return _("the webhook %(webhook)s", webhook=action.webhook) if action.webhook else _("every webhook subscribed to alerts")


@page("GET", "/alerts/<alert_id>/edit", scope="processflow.write")
def edit_alert(visit: Visit, alert_id: str) -> Answer:
    """The form of an existing alert: its name, condition and recipients."""
    row = visit.services.monitor.alerts.get_alert(visit.scope, alert_id)
    return _form(visit, _form_values(row), editing=row)


@page("POST", "/alerts/<alert_id>/edit", scope="processflow.write")
def save_alert(visit: Visit, alert_id: str) -> Answer:
    """Save the changed values; a changed condition resets the state of the alert."""
    alerts = visit.services.monitor.alerts
    row = alerts.get_alert(visit.scope, alert_id)
    try:
        spec = _spec(visit)
        actions = spec.actions if _fits_form(actions_of(row)) else actions_of(row)
        change = AlertChange(
            name=spec.name, condition=spec.condition if spec.condition != condition_of(row) else None,
            actions=actions if list(actions) != actions_of(row) else None, for_ms=spec.for_ms, repeat_ms=spec.repeat_ms,
        )  # fmt: skip
        alerts.change_alert(visit.scope, alert_id, change)
    except ApplianceError as problem:
        values = {name: visit.request.field(name) for name in visit.request.form} | {"kind": condition_of(row).kind}
        return _form(visit, values, problem, editing=row)
    return Redirect(f"{HERE}/{alert_id}")


def _form_values(row: AlertRow) -> dict[str, str]:
    """The form values that would create this alert."""
    values = {"name": row.name}
    for name, value in condition_of(row).members().items():
        values[EXTERNAL_NAMES.get(name, name)] = format_duration(value) if name in _DURATIONS else _format_value(value)
    values |= {name: format_duration(ms) for name, ms in (("for", row.for_ms), ("repeat", row.repeat_ms)) if ms}
    for action in actions_of(row):
        if action.kind == "email":
            values |= {"mailer": action.integration or "", "role": (action.members or OWNERS)[0].removeprefix("role:")}
        elif action.kind == "webhook":
            values["webhook"] = action.webhook or "all"
        else:
            values["starts"] = action.process or ""
    return values


def _format_value(value: str | float) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _fits_form(actions: Sequence[Action]) -> bool:
    """Whether the form can represent the actions: at most one e-mail to one role, one webhook (or all), and one process."""
    kinds = [each.kind for each in actions]
    recipients = [each.members or OWNERS for each in actions if each.kind == "email"]
    return len(kinds) == len(set(kinds)) and all(len(to) == 1 and to[0].removeprefix("role:") in ROLES for to in recipients)


@page("POST", "/alerts/<alert_id>/change", scope="processflow.write")
def change_alert(visit: Visit, alert_id: str) -> Answer:
    """Silence the alert, end the silence, switch it on or off, or send a test notification."""
    alerts, target = visit.services.monitor.alerts, visit.request.field("to")
    try:
        if target == "test":
            alerts.send_test(visit.scope, alert_id)
        else:
            alerts.change_alert(visit.scope, alert_id, _change(target))
    except ApplianceError as problem:
        return _alert_page(visit, alert_id, problem)
    return Redirect(f"{HERE}/{alert_id}")


def _change(target: str) -> AlertChange:
    if target in ("on", "off"):
        return AlertChange(enabled=target == "on")
    if target == "heard":
        return AlertChange(silenced_until=0)
    if target in SILENCES:
        return AlertChange(silenced_until=clock.now_ms() + clock.parse_duration(target))
    raise ValidationFailed("choose an action on the page")


@page("POST", "/alerts/<alert_id>/delete", scope="processflow.write")
def delete_alert(visit: Visit, alert_id: str) -> Answer:
    """Delete the alert with its history."""
    visit.services.monitor.alerts.delete_alert(visit.scope, alert_id)
    return Redirect(HERE)


def _form(
    visit: Visit, values_entered: dict[str, str], problem: ApplianceError | None = None, editing: AlertRow | None = None
) -> Page:
    kind = next((each for each in KINDS if each == values_entered.get("kind")), None)
    processes = versions.list_processes(visit.scope, PageRequest(MAX_LIMIT, sort="name")).items
    webhooks = visit.services.monitor.webhooks
    hooks = webhooks.list_webhooks(visit.scope, PageRequest(100)).items if visit.may("integrations.write") else []
    members = [name for names in MEMBERS[kind] for name in names] if kind else []
    slugs = [each.slug for each in visit.services.integrations.list_integrations(visit.scope, PageRequest(MAX_LIMIT)).items]
    values = {
        "kind": kind, "kinds": KINDS, "fields": [EXTERNAL_NAMES.get(name, name) for name in members],
        "needed": [EXTERNAL_NAMES.get(name, name) for name in MEMBERS[kind][0]] if kind else [], "entered": values_entered,
        "problem": problem, "processes": processes,
        "webhooks": [each for each in hooks if each.state == "active" or each.id == values_entered.get("webhook")],
        "mailers": [slug for slug in slugs if visit.may("integrations.execute") and _sends(visit, slug)], "integrations": slugs,
        "roles": ROLES, "editing": editing, "quotas": TITLES,
        "fixed_notifications": [] if editing is None or _fits_form(actions_of(editing))
        else [_describe_action(visit, each) for each in actions_of(editing)],
    }  # fmt: skip
    return Page("alert_new.html", values, problem.status if problem else 200)


def _sends(visit: Visit, slug: str) -> bool:
    return "send" in (visit.services.integrations.find_actions(visit.scope, slug) or ())


def _spec(visit: Visit) -> AlertSpec:
    sent = visit.request.field
    kind = next((each for each in KINDS if each == sent("kind")), None)
    if kind is None:
        raise ValidationFailed("choose what to monitor", pointer="/kind")
    return AlertSpec(sent("name").strip(), _condition(visit, kind), _actions(visit), _ms(visit, "for"), _ms(visit, "repeat"))


def _condition(visit: Visit, kind: conditions.Kind) -> Condition:
    """The condition in the form; only the members that its kind has are read."""
    members: dict[str, Any] = {}
    for name in (name for names in MEMBERS[kind] for name in names):
        text = visit.request.field(EXTERNAL_NAMES.get(name, name)).strip()
        if text and name in _DURATIONS:
            members[name] = clock.parse_duration(text, pointer=f"/condition/{EXTERNAL_NAMES[name]}")
        elif text:
            members[name] = text if name in _NAMES else _number(text, name)
    return Condition(kind, **members)


def _number(text: str, name: str) -> float:
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        raise ValidationFailed(Sentence("%(text)s is not a number", text=repr(text[:40])), pointer=f"/condition/{name}") from None
    return int(number) if number.is_integer() else number


def _ms(visit: Visit, name: str) -> int:
    text = visit.request.field(name).strip()
    return clock.parse_duration(text, pointer=f"/{name}") if text else 0


def _actions(visit: Visit) -> list[Action]:
    sent, actions = visit.request.field, []
    if mailer := sent("mailer"):
        actions.append(Action("email", integration=mailer, members=(f"role:{sent('role') or 'owner'}",)))
    if hook := sent("webhook"):
        actions.append(Action("webhook", webhook=None if hook == "all" else hook))
    if process := sent("starts"):
        actions.append(Action("process", process=process))
    return actions
