"""Invitations: revoked on the page of people, accepted on the base host by anyone with the link."""

from concurrent.futures import Future
from functools import partial

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Deferred, Page, Redirect, Visit, base_page, page
from appliance.console.pages.start.second_factor import ask_for_factor
from appliance.console.pages.start.temporary_password import ask_for_password
from appliance.core.errors import ApplianceError, Gone, ValidationFailed
from appliance.core.texts import gettext as _
from appliance.tenants import Offer, invitations, people
from appliance.tenants.sign_in import Attempt, temporary_passwords

PEOPLE = "/console/people"


@page("POST", "/people/invitations/<invitation_id>/revoke", scope="keys.write")
def revoke_invitation(visit: Visit, invitation_id: str) -> Answer:
    """Revoke an invitation; its link stops working."""
    invitations.revoke_invitation(visit.scope, invitation_id)
    return Redirect(PEOPLE)


@base_page("GET", "/invitation")
def show_invitation(arrival: Arrival) -> Answer:
    """The invitation with the form for a password; a visitor who is signed in as another user stays so until they accept."""
    if not arrival.request.http.can_hold_cookies:
        return Page("base/needs_https.html", {"host": arrival.request.host}, 426)
    return _form(arrival, arrival.request.args.get("token", ""))


def _form(arrival: Arrival, token: str, problem: ApplianceError | None = None) -> Page:
    try:
        offer = invitations.read_offer(arrival.services.sealer, token)
    except Gone as error:
        details = {"person": arrival.person, "title": _("Invitation no longer valid"), "problem": error}
        return Page("base/problem.html", details, error.status)
    values = {"offer": offer, "token": token, "problem": problem, "person": arrival.person}
    return Page("base/invitation.html", values, problem.status if problem else 200, problem.headers if problem else {})


@base_page("POST", "/invitation")
def accept_invitation(arrival: Arrival) -> Answer:
    """Join the tenant with a new account and password, or with the password of an existing account."""
    request, services = arrival.request, arrival.services
    if not request.http.can_hold_cookies:
        return Page("base/needs_https.html", {"host": request.host}, 426)
    token, password = request.field("token"), request.field("password")
    try:
        offer: Offer = invitations.read_offer(services.sealer, token)
        if not offer.has_account and password != request.field("again"):
            raise ValidationFailed("the two passwords differ; enter the same one twice", pointer="/again")
        attempt = Attempt(offer.login, request.address, session.find_device(services, request, offer.login))
        work = services.limits.password_checks.submit(attempt, partial(services.governance.invitations.accept, token, password))
    except ApplianceError as error:
        return _form(arrival, token, error)
    return Deferred(work, lambda: _after_joining(arrival, token, work))


def _after_joining(arrival: Arrival, token: str, work: "Future[tuple[str, str]]") -> Answer:
    services = arrival.services
    try:
        user_id, tenant_id = work.result()
    except ApplianceError as error:
        return _form(arrival, token, error)
    person = people.get_user(user_id)  # the password, which joins the tenant, does not always sign in alone
    if temporary_passwords.must_replace(person):
        return ask_for_password(arrival, person, {"tenant": tenant_id})
    if services.second_factors.methods_of(user_id).is_needed:
        return ask_for_factor(arrival, person, {"tenant": tenant_id})
    return session.join_tenant(services, arrival.request, user_id, tenant_id)
