"""The page of people: members with their roles and open invitations; add, invite, change and remove members."""

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ScopeMissing, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.solutions import offboarding
from appliance.tenants import ROLES, InvitationSpec, invitations, people

HERE = "/console/people"
MEANINGS = {
    "owner": mark("everything, including API keys, policies and people"),
    "builder": mark("everything except API keys, policies and people"),
    "operator": mark("runs processes and changes data"),
    "viewer": mark("can only view"),
}
LASTING = {"1": mark("a day"), "7": mark("a week"), "30": mark("30 days")}


@page("GET", "/people", scope="keys.read")
def list_members(visit: Visit) -> Answer:
    """The members of this tenant and the open invitations."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    form = {name: visit.request.field(name) for name in ("login", "role", "approver", "days", "way")}
    inviting = visit.services.governance.invitations
    values = {
        "members": people.list_members(visit.scope, with_disabled=True), "invited": invitations.list_invitations(visit.scope),
        "name_of": Names(visit).of, "meanings": MEANINGS, "roles": list(reversed(ROLES)), "problem": problem, "form": form,
        "may": visit.may("keys.write"), "me": visit.person.user_id, "can_invite": inviting.is_enabled,
        "can_write": inviting.can_send_email(visit.scope), "lasting": LASTING, "sent": visit.request.args.get("sent", ""),
    }  # fmt: skip
    return Page("people.html", values, problem.status if problem else 200)


@page("POST", "/people", scope="keys.write", step_up=True)
def add_member(visit: Visit) -> Answer:
    """Add a member or change their role; a login without an account is invited."""
    request = visit.request
    login, is_approver = request.field("login").strip(), request.field("approver") == "yes"
    try:
        if not login:
            raise ValidationFailed("enter the person's login, usually an e-mail address", pointer="/login")
        if request.field("sure") != "yes" and (page := _confirm_role(visit, login, request.field("role"))):
            return page
        people.add_member(visit.scope, login, request.field("role"), approver=is_approver)
    except NotFound as error:
        return _invite(visit, InvitationSpec(login, request.field("role"), is_approver, _days(visit)), error)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


def _days(visit: Visit) -> int:
    chosen = visit.request.field("days") or "7"
    return int(chosen) if chosen in LASTING else 0


def _invite(visit: Visit, spec: InvitationSpec, unknown: NotFound) -> Answer:
    way = {"email": True, "link": False}.get(visit.request.field("way"))
    try:
        invited = visit.services.governance.invitations.invite(visit.scope, spec, by_email=way)
    except ScopeMissing as error:
        if visit.services.governance.invitations.is_enabled:
            return _page(visit, error)
        refusal = ValidationFailed(
            Sentence(
                "%(unknown)s; the operator of this appliance can create an account with `gos user add LOGIN`", unknown=unknown
            ),
            pointer="/login",
        )
        return _page(visit, refusal)
    except ApplianceError as error:
        return _page(visit, error)
    if invited.link:
        return Page("invited.html", {"row": invited.invitation, "link": invited.link}, 201)
    return Redirect(f"{HERE}?sent=email")


def _confirm_role(visit: Visit, login: str, role: str) -> Page | None:
    """A confirmation page with the API keys that a lower role would restrict; None when there are none."""
    members = [each for each in people.list_members(visit.scope, with_disabled=True) if each.login == login.lower()]
    if not members or role not in ROLES:
        return None
    authority = offboarding.read_authority(visit.scope, members[0].user_id, role)
    if not authority.shrinking:
        return None
    hidden = {"login": login, "role": role, "approver": visit.request.field("approver"), "sure": "yes"}
    values = {"authority": authority, "keys": authority.shrinking, "role": role, "hidden": hidden}
    return Page("member_authority.html", values | {"names": Names(visit), "adopted": (), "stopped": (), "problem": None})


@page("GET", "/people/<user_id>/remove", scope="keys.write")
def show_removal(visit: Visit, user_id: str) -> Answer:
    """The keys and processes that depend on a member, with the choice of what happens to each."""
    return _removal(visit, user_id)


def _removal(visit: Visit, user_id: str, problem: ApplianceError | None = None) -> Page:
    authority = offboarding.read_authority(visit.scope, user_id)
    values = {
        "authority": authority, "keys": authority.keys, "role": "", "hidden": {},
        "names": Names(visit), "adopted": (*_chosen(visit, "key", "adopt"), *_chosen(visit, "process", "adopt")),
        "stopped": _chosen(visit, "process", "stop"), "problem": problem,
    }  # fmt: skip
    return Page("member_authority.html", values, problem.status if problem else 200)


def _chosen(visit: Visit, kind: str, what: str) -> list[str]:
    """The ids of the items of this kind for which the form chose `what`."""
    form = visit.request.form
    return [name.removeprefix(f"{kind}-") for name in form if name.startswith(f"{kind}-") and visit.request.field(name) == what]


@page("POST", "/people/<user_id>/remove", scope="keys.write", step_up=True)
def remove_member(visit: Visit, user_id: str) -> Answer:
    """Remove a member, and hand over or stop what depends on them as chosen; the account itself remains."""
    handover = offboarding.Handover(
        _chosen(visit, "key", "adopt"), _chosen(visit, "process", "adopt"), _chosen(visit, "process", "stop")
    )
    try:
        offboarding.remove_member(visit.scope, user_id, handover)
    except NotFound as error:
        return _page(visit, error)
    except ApplianceError as error:
        return _removal(visit, user_id, error)
    return Redirect(HERE)
