"""The page of confirmations: requests that wait for an owner's decision, and recent decisions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.tenants import SCOPES, people
from appliance.tenants.grants import AccessSpec, Confirmation, Need, confirmations, may_decide

HERE = "/console/confirmations"
DECIDED = 20


@dataclass(frozen=True)
class Line:
    """One permission as text; `exceeds` when the requester does not hold it."""

    text: str
    scope: str
    exceeds: bool


@dataclass(frozen=True)
class ConfirmationView:
    """A confirmation as text: what is requested, why, and the consequence of each decision."""

    row: Confirmation
    title: str
    url: str
    why: str
    lines: Sequence[Line]
    allow: str
    refuse: str

    @property
    def is_suspended(self) -> bool:
        """Whether the deadline has passed, so that what it concerns has been stopped."""
        return self.row.deadline is not None and self.row.deadline <= clock.now_ms()


def describe_need(need: Need) -> str:
    """One permission in the reader's language."""
    detail = need.names["detail"]
    return _(need.text, name=need.names["name"], detail=_("every action") if detail == "*" else detail)


def permission_lines(access: AccessSpec, exceeding: Sequence[str] = ()) -> list[Line]:
    """All permissions of a grant; those that the requester does not hold come first."""
    lines = [Line(describe_need(need), need.scope, need.scope in exceeding) for need in access.needs]
    return sorted(lines, key=lambda line: not line.exceeds)


def to_view(row: Confirmation, names: Names) -> ConfirmationView:
    """The texts of a confirmation for the page."""
    who = row.details["author"] if row.details.get("author") else row.requested_by
    return VIEWS[row.kind](row, names.of(str(who)))


def _grant_view(row: Confirmation, who: str) -> ConfirmationView:
    details = row.details
    kind, _colon, name = row.subject.partition(":")
    is_process = kind == "process"
    title = _("Access for the process %(name)s", name=name)
    if not is_process:
        title = _("Access for the WebApp %(name)s", name=name)
    why = _("%(who)s tried to publish it but lacks some of these permissions.", who=who)
    if details.get("why") == "wider":
        why = _(
            "Version %(version)s was published before grants were recorded, by %(who)s, who lacks some of these permissions.",
            version=details["version"], who=who,
        )  # fmt: skip
    elif details.get("why") == "departed":
        why = _(
            "Version %(version)s was published before grants were recorded, by someone who has left.",
            version=details["version"],
        )  # fmt: skip
    is_running = "why" in details
    allow = _("It continues with exactly these permissions.") if is_running else _("The same content can then be published.")
    refuse = _("It stays unpublished.")
    if is_running:
        refuse = _("The process stops. No new executions start.") if is_process else _("It is unpublished.")
    lines = permission_lines(AccessSpec(details["reach"]), details["scopes"])
    return ConfirmationView(
        row=row, title=title, url=f"/console/{'processes' if is_process else 'webapps'}/{name}", why=why, lines=lines, allow=allow,
        refuse=refuse,
    )


def _key_view(row: Confirmation, who: str) -> ConfirmationView:
    details = row.details
    title = _("The API key %(name)s", name=str(details.get("name") or row.subject))
    why = _("Its issuer has left, so no one is responsible for it.")
    lines = [Line(_(SCOPES.get(scope, scope)), scope, False) for scope in details.get("scopes", ())]
    allow, refuse = _("You become responsible for the key. It can do no more than you can."), _("The key is revoked immediately.")
    return ConfirmationView(row=row, title=title, url="/console/keys", why=why, lines=lines, allow=allow, refuse=refuse)


def _secret_view(row: Confirmation, who: str) -> ConfirmationView:
    details = row.details
    name, target = str(details["secret"]), str(details["target"])
    title = _("Use of the secret %(name)s", name=name)
    why = _("In use there since before secrets had destinations. The person who set it up may not decide where secrets go.")
    if details.get("reason") == "departed":
        why = _("In use there since before secrets had destinations. Who set it up is unknown.")
    place = _("by %(kind)s %(target)s", kind=_place_name(details["kind"]), target=target)
    lines = [Line(place, "", False)]
    if hosts := details.get("hosts"):
        lines.append(Line(_("sent to %(host)s", host=hosts), "", False))
    allow, refuse = _("The secret can be used there."), _("The secret cannot be used there.")
    return ConfirmationView(row=row, title=title, url=f"/console/secrets/{name}", why=why, lines=lines, allow=allow, refuse=refuse)


_PLACES = {
    "process": mark("the process"), "integration": mark("the integration"), "llm-profile": mark("the LLM profile"),
    "webapp": mark("the WebApp"), "webhook": mark("the webhooks of the process"),
}  # fmt: skip


def _place_name(kind: str) -> str:
    """The name of the kind of resource that uses a secret."""
    return _(_PLACES[kind]) if kind in _PLACES else kind


VIEWS: Mapping[confirmations.Kind, Callable[[Confirmation, str], ConfirmationView]] = {
    "grant": _grant_view, "key": _key_view, "secret": _secret_view,
}  # fmt: skip


def list_owners(visit: Visit) -> list[str]:
    """The logins of the owners, who can decide."""
    return [member.login for member in people.list_members(visit.scope) if member.role == "owner"]


@page("GET", "/confirmations", scope="keys.read")
def list_confirmations(visit: Visit) -> Answer:
    """The open confirmations and the latest decisions."""
    scope, names = visit.scope, Names(visit)
    values: dict[str, Any] = {
        "waiting": [to_view(row, names) for row in confirmations.list_open(scope)],
        "decided": [to_view(row, names) for row in confirmations.list_decided(scope, DECIDED)],
        "may": may_decide(scope), "owners": list_owners(visit), "names": names,
    }  # fmt: skip
    return Page("confirmations.html", values)


@page("POST", "/confirmations/<confirmation_id>", scope="keys.read", step_up=True)
def decide_confirmation(visit: Visit, confirmation_id: str) -> Answer:
    """Allow or refuse a confirmation."""
    visit.services.governance.confirmations.decide(visit.scope, confirmation_id, visit.request.field("answer") == "allow")
    return Redirect(HERE)


@page("GET", "/authority", scope=None)
def explain_authority(visit: Visit) -> Answer:
    """Explains authority by lineage to the members of a tenant, and what its introduction changed."""
    return Page("authority.html", {"authority": visit.services.config.authority})
