"""The page of people: who belongs to the tenant with which role, added, changed and removed."""

from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.tenants import people
from appliance.tenants.scopes import ROLES

from .routing import Answer, Page, Redirect, Visit, page

HERE = "/console/people"
MEANINGS = {
    "owner": "everything, API keys, policies and people included",
    "builder": "everything but API keys, policies and people",
    "operator": "runs processes and changes data",
    "viewer": "reads",
}


@page("GET", "/people", scope="keys.read")
def list_members(visit: Visit) -> Answer:
    """Everybody with a role in this tenant."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    form = {name: visit.asked.field(name) for name in ("login", "role", "approver")}
    values = {
        "members": people.list_members(visit.scope), "meanings": MEANINGS, "roles": list(reversed(ROLES)), "problem": problem,
        "form": form, "may": visit.may("keys.write"), "me": visit.person.user_id,
    }  # fmt: skip
    return Page("people.html", values, problem.status if problem else 200)


@page("POST", "/people", scope="keys.write")
def add_member(visit: Visit) -> Answer:
    """Give somebody with an account a role, or change it."""
    asked = visit.asked
    try:
        if not (login := asked.field("login").strip()):
            raise ValidationFailed("say whom: the login of somebody with an account on this appliance", pointer="/login")
        people.add_member(visit.scope, login, asked.field("role"), approver=asked.field("approver") == "yes")
    except NotFound as error:
        told = f"{error}; whoever runs this appliance makes an account with `gos user add LOGIN`"
        return _page(visit, ValidationFailed(told, pointer="/login"))
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


@page("POST", "/people/<user_id>/remove", scope="keys.write")
def remove_member(visit: Visit, user_id: str) -> Answer:
    """Take somebody's role; the account stays."""
    try:
        people.remove_member(visit.scope, user_id)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)
