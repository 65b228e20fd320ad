"""A fresh proof for a form of a tenant's console, or for a page of this host, which continues afterwards."""

from concurrent.futures import Future
from functools import partial
from urllib.parse import urlencode

from appliance.console.frame import session, step_up
from appliance.console.frame.routing import Answer, Arrival, Deferred, Page, Redirect, base_page
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Gone, NotFound
from appliance.core.texts import mark, mark_error
from appliance.tenants import Person, people
from appliance.tenants.second_factors import StepUpRequest, step_ups
from appliance.tenants.sign_in import Attempt

from .second_factor import ceremony_data

EXPIRED = mark_error("this request has expired; go back to the console, and do it again")
ELSEWHERE = mark_error("you have signed in anew since; go back to the console, and do it again")


@base_page("GET", step_up.CONFIRM)
def show_confirmation(arrival: Arrival) -> Answer:
    """The ways to prove who it is; leads to a new factor whoever needs one and has none."""
    token = arrival.request.args.get("request", "")
    try:
        waiting = _find(arrival, token)
    except ApplianceError as error:
        return _problem(arrival, error)
    factors, person = arrival.services.second_factors, arrival.person
    if factors.needs_factor(waiting.user_id):
        return Redirect(f"{step_up.ADD}?{urlencode({'request': token})}")
    is_proven = person is not None and waiting.is_of(person) and factors.is_fresh(person)
    has_proof = factors.methods_of(waiting.user_id).is_needed or factors.takes_password(waiting.user_id)
    if is_proven or not has_proof:
        return Redirect(_target(arrival, token, waiting))
    return _page(arrival, token, waiting)


def _find(arrival: Arrival, token: str) -> StepUpRequest:
    waiting = step_ups.find_request(arrival.services.sealer, token)
    if waiting is None:
        raise NotFound(EXPIRED)
    return waiting


def _problem(arrival: Arrival, error: ApplianceError) -> Page:
    return Page("base/problem.html", {"person": arrival.person, "title": mark("Not possible"), "problem": error}, error.status)


def _page(arrival: Arrival, token: str, waiting: StepUpRequest, problem: ApplianceError | None = None) -> Page:
    factors = arrival.services.second_factors
    values = {
        "login": waiting.login, "methods": factors.methods_of(waiting.user_id), "problem": problem, "action": step_up.CONFIRM,
        "takes_password": factors.takes_password(waiting.user_id), "hidden": {"request": token},
        "options": f"{step_up.CONFIRM}/options?{urlencode({'request': token})}",
        "back": _console(arrival, waiting),
    }  # fmt: skip
    return Page("base/step_up.html", values, problem.status if problem else 200, problem.headers if problem else {})


def _console(arrival: Arrival, waiting: StepUpRequest) -> str:
    return "/" if waiting.tenant_id is None else f"{arrival.services.config.tenant_url(waiting.tenant_id)}/console/"


@base_page("GET", f"{step_up.CONFIRM}/options")
def begin_confirmation(arrival: Arrival) -> Answer:
    """Options to use a passkey of the account that the request belongs to."""
    waiting = _find(arrival, arrival.request.args.get("request", ""))
    return ceremony_data(arrival.services.second_factors.passkeys.begin(waiting.purpose, waiting.user_id))


@base_page("POST", step_up.CONFIRM)
def confirm(arrival: Arrival) -> Answer:
    """Check the proof, and continue with the form that waits for it."""
    request, services = arrival.request, arrival.services
    token = request.field("request")
    try:
        waiting = _find(arrival, token)
    except ApplianceError as error:
        return _problem(arrival, error)
    factors = services.second_factors
    attempt = Attempt(waiting.login, request.address, session.find_device(services, request, waiting.login))
    try:
        if request.field("token"):
            proof = (request.field("token"), request.field("response"))
            method = factors.prove_by_passkey(attempt, (waiting.purpose, waiting.user_id), *proof)
        elif "password" in request.form and factors.takes_password(waiting.user_id):
            check = partial(people.check_password, waiting.login, request.field("password"))
            work = services.limits.password_checks.submit(attempt, check)
            return Deferred(work, lambda: _after_password(arrival, token, waiting, work))
        else:
            method = factors.prove_by_code(attempt, waiting.user_id, request.field("code"))
    except ApplianceError as error:
        return _page(arrival, token, waiting, error)
    return _continue(arrival, token, waiting, method)


def _after_password(arrival: Arrival, token: str, waiting: StepUpRequest, work: "Future[Person]") -> Answer:
    try:
        work.result()
    except ApplianceError as error:
        return _page(arrival, token, waiting, error)
    return _continue(arrival, token, waiting, "password")


def _continue(arrival: Arrival, token: str, waiting: StepUpRequest, method: str) -> Answer:
    """Carry the proof to where the form waits: it counts in the browser where it was made, and in the sign-in that asked for it."""
    sealer = arrival.services.sealer
    try:
        if waiting.tenant_id is not None:
            code = step_ups.issue_code(sealer, token, waiting, method)
            return Redirect(_target(arrival, token, waiting, code))
        if not waiting.is_of(arrival.person):
            raise Gone(ELSEWHERE)
        db.write(lambda: step_ups.record_proof(waiting, method))
    except ApplianceError as error:
        return _problem(arrival, error)
    return Redirect(waiting.target)


def _target(arrival: Arrival, token: str, waiting: StepUpRequest, code: str = "") -> str:
    if waiting.tenant_id is None:
        return waiting.target
    query = urlencode({"request": token} | ({"code": code} if code else {}))
    return f"{arrival.services.config.tenant_url(waiting.tenant_id)}/console/proven?{query}"
