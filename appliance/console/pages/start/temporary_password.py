"""An own password in place of a temporary one: asked for at the first sign-in, before there is a session."""

from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Deferred, Page, Redirect, base_page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.tenants import Person
from appliance.tenants.second_factors import PendingFactor, pending
from appliance.tenants.sign_in import Attempt, temporary_passwords

from . import second_factor
from .onward import OWN_PATH, continue_onward

AGAIN = {session.FACTOR_COOKIE: ""}


def ask_for_password(arrival: Arrival, person: Person, onward: Mapping[str, str]) -> Redirect:
    """Ask somebody whose temporary password was right for an own one; a sealed cookie remembers who it is."""
    return Redirect(OWN_PATH, {session.FACTOR_COOKIE: pending.seal_pending(arrival.services.sealer, person, onward)})


def _find_pending(arrival: Arrival) -> tuple[PendingFactor, Person] | None:
    """Who chooses a password here; None if it was started too long ago, or the password was replaced since."""
    waiting = pending.open_pending(arrival.services.sealer, arrival.request.cookies.get(session.FACTOR_COOKIE, ""))
    person = None if waiting is None else pending.find_checked(arrival.services.sealer, waiting)
    if waiting is None or person is None or not temporary_passwords.must_replace(person):
        return None
    return waiting, person


@base_page("GET", OWN_PATH)
def show_form(arrival: Arrival) -> Answer:
    """The form for an own password."""
    match = _find_pending(arrival)
    return Redirect("/sign-in", AGAIN) if match is None else _form(match[0])


def _form(waiting: PendingFactor, problem: ApplianceError | None = None) -> Page:
    values = {"login": waiting.login, "problem": problem, "action": OWN_PATH}
    return Page("base/password_own.html", values, problem.status if problem else 200, problem.headers if problem else {})


@base_page("POST", OWN_PATH)
def store_password(arrival: Arrival) -> Answer:
    """Store the own password, sign in, and continue; an account with a second factor is asked for it first."""
    request, match = arrival.request, _find_pending(arrival)
    if match is None:
        return Redirect("/sign-in", AGAIN)
    waiting, person = match
    password = request.field("password")
    if password != request.field("again"):
        return _form(waiting, ValidationFailed("the two passwords differ; enter the same one twice", pointer="/again"))
    attempt = Attempt(waiting.login, request.address, session.find_device(arrival.services, request, waiting.login))
    replace = partial(temporary_passwords.replace_temporary_password, person, password)
    try:
        work = arrival.services.limits.password_checks.submit(attempt, replace)
    except ApplianceError as error:
        return _form(waiting, error)
    return Deferred(work, lambda: _after_change(arrival, waiting, work))


def _after_change(arrival: Arrival, waiting: PendingFactor, work: "Future[Person]") -> Answer:
    request, services = arrival.request, arrival.services
    try:
        person = work.result()
        if services.second_factors.methods_of(person.id).is_needed:
            return second_factor.ask_for_factor(arrival, person, waiting.onward)
        cookies = session.sign_in(services, request, person) | session.remember_device(services, request, waiting.login)
    except ApplianceError as error:
        return _form(waiting, error)
    return continue_onward(arrival, (person.id, person.login), waiting.onward, {**cookies, **AGAIN})
