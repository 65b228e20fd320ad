"""The page of people: who belongs to the tenant with which role, added, invited, changed and removed."""

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ScopeMissing, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.solutions import departures
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
    """Everybody with a role in this tenant, and who is invited."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    form = {name: visit.asked.field(name) for name in ("login", "role", "approver", "days", "way")}
    inviting = visit.services.invitations
    values = {
        "members": people.list_members(visit.scope), "invited": invitations.list_invitations(visit.scope),
        "name_of": Names(visit).of, "meanings": MEANINGS, "roles": list(reversed(ROLES)), "problem": problem, "form": form,
        "may": visit.may("keys.write"), "me": visit.person.user_id, "can_invite": inviting.are_offered,
        "can_write": inviting.can_write(visit.scope), "lasting": LASTING, "told": visit.asked.args.get("told", ""),
    }  # fmt: skip
    return Page("people.html", values, problem.status if problem else 200)


@page("POST", "/people", scope="keys.write")
def add_member(visit: Visit) -> Answer:
    """Give somebody with an account a role, or change it; invite whoever has none."""
    asked = visit.asked
    login, is_approver = asked.field("login").strip(), asked.field("approver") == "yes"
    try:
        if not login:
            raise ValidationFailed("say whom: their login, most often an e-mail address", pointer="/login")
        if asked.field("sure") != "yes" and (page := _confirm_role(visit, login, asked.field("role"))):
            return page
        people.add_member(visit.scope, login, asked.field("role"), approver=is_approver)
    except NotFound as error:
        return _invite(visit, InvitationSpec(login, asked.field("role"), is_approver, _days(visit)), error)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


def _days(visit: Visit) -> int:
    chosen = visit.asked.field("days") or "7"
    return int(chosen) if chosen in LASTING else 0


def _invite(visit: Visit, spec: InvitationSpec, unknown: NotFound) -> Answer:
    way = {"letter": True, "link": False}.get(visit.asked.field("way"))
    try:
        made = visit.services.invitations.invite(visit.scope, spec, by_email=way)
    except ScopeMissing as error:
        if visit.services.invitations.are_offered:
            return _page(visit, error)
        refusal = ValidationFailed(
            Sentence("%(unknown)s; whoever runs this appliance makes an account with `gos user add LOGIN`", unknown=unknown),
            pointer="/login",
        )
        return _page(visit, refusal)
    except ApplianceError as error:
        return _page(visit, error)
    if made.link:
        return Page("invited.html", {"row": made.invitation, "link": made.link}, 201)
    return Redirect(f"{HERE}?told=letter")


def _confirm_role(visit: Visit, login: str, role: str) -> Page | None:
    """What a lower role takes from keys is shown before; None when it takes nothing."""
    known = [each for each in people.list_members(visit.scope) if each.login == login.lower()]
    if not known or role not in ROLES:
        return None
    authority = departures.read_authority(visit.scope, known[0].user_id, role)
    if not authority.shrinking:
        return None
    hidden = {"login": login, "role": role, "approver": visit.asked.field("approver"), "sure": "yes"}
    values = {"authority": authority, "keys": authority.shrinking, "role": role, "hidden": hidden}
    return Page("member_authority.html", values | {"names": Names(visit), "adopted": (), "stopped": (), "problem": None})


@page("GET", "/people/<user_id>/remove", scope="keys.write")
def show_removal(visit: Visit, user_id: str) -> Answer:
    """What rests on somebody, and what shall become of it."""
    return _removal(visit, user_id)


def _removal(visit: Visit, user_id: str, problem: ApplianceError | None = None) -> Page:
    authority = departures.read_authority(visit.scope, user_id)
    values = {
        "authority": authority, "keys": authority.keys, "role": "", "hidden": {},
        "names": Names(visit), "adopted": (*_chosen(visit, "key", "adopt"), *_chosen(visit, "process", "adopt")),
        "stopped": _chosen(visit, "process", "stop"), "problem": problem,
    }  # fmt: skip
    return Page("member_authority.html", values, problem.status if problem else 200)


def _chosen(visit: Visit, kind: str, what: str) -> list[str]:
    """The ids of this kind that this was chosen for."""
    form = visit.asked.form
    return [name.removeprefix(f"{kind}-") for name in form if name.startswith(f"{kind}-") and visit.asked.field(name) == what]


@page("POST", "/people/<user_id>/remove", scope="keys.write")
def remove_member(visit: Visit, user_id: str) -> Answer:
    """Take somebody's role, and what they leave behind over as it was chosen; the account stays."""
    handover = departures.Handover(
        _chosen(visit, "key", "adopt"), _chosen(visit, "process", "adopt"), _chosen(visit, "process", "stop")
    )
    try:
        departures.remove_member(visit.scope, user_id, handover)
    except NotFound as error:
        return _page(visit, error)
    except ApplianceError as error:
        return _removal(visit, user_id, error)
    return Redirect(HERE)
