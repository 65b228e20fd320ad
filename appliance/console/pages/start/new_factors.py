"""Adding a second factor: a passkey, or an app that shows codes.  On the base host, where passkeys are used."""

from urllib.parse import urlencode

from appliance.console.frame import recovery_codes, step_up
from appliance.console.frame.routing import Answer, Arrival, Page, Redirect, base_page
from appliance.core.errors import ApplianceError, PolicyDenied
from appliance.core.texts import mark_error
from appliance.tenants import SignedIn, people
from appliance.tenants.second_factors import apps, step_ups

from . import visiting
from .onward import onward_of
from .second_factor import ceremony_data

APP, PASSKEY = "/factors/app", "/factors/passkey"
STALE = mark_error("prove who you are first; reload this page")


def _onward(arrival: Arrival) -> dict[str, str]:
    """Where to continue, as URL parameters: as after a sign-in, or with what waits for a factor."""
    token = arrival.request.args.get("request", "")
    return onward_of(arrival) | ({"request": token} if token else {})


def _target(arrival: Arrival, person: SignedIn) -> str:
    """The address to continue at."""
    onward = _onward(arrival)
    if "request" in onward:
        return step_up.confirm_path(onward["request"])
    if "host" in onward:
        return f"{visiting.VISIT}?{urlencode(onward)}"
    if "state" in onward:
        return f"/hand-over?{urlencode(onward)}"
    tenant = onward.get("tenant", "")
    if tenant in [row.id for row, _ in people.tenants_of(person.user_id)]:
        return f"{arrival.services.config.tenant_url(tenant)}/console/account"
    return "/"


def _due(arrival: Arrival) -> Redirect | None:
    """The page to go to first: to sign in, or to prove who it is as before any sensitive form; None if nothing is due."""
    person, services = arrival.person, arrival.services
    if person is None:
        return Redirect("/sign-in")
    if services.second_factors.find_due(person) != "prove":
        return None
    target = f"{arrival.request.path}?{arrival.request.query}".rstrip("?")
    return Redirect(step_up.confirm_path(step_ups.store_request(services.sealer, person, target, "")))


@base_page("GET", step_up.ADD)
def show_choice(arrival: Arrival) -> Answer:
    """The choice between a passkey and an app."""
    person = arrival.person
    return _choice(arrival, person) if (due := _due(arrival)) is None and person is not None else due or Redirect("/sign-in")


def _choice(arrival: Arrival, person: SignedIn, problem: ApplianceError | None = None) -> Page:
    second_factors = arrival.services.second_factors
    values = {
        "person": person, "problem": problem, "query": _query(arrival), "back": _target(arrival, person),
        "has_passkeys": second_factors.passkeys.are_available, "is_required": second_factors.must_add_factor(person),
        "name": arrival.request.field("name"), "options": f"{PASSKEY}/options",
    }  # fmt: skip
    return Page("base/factor_new.html", values, problem.status if problem else 200)


def _query(arrival: Arrival) -> str:
    onward = _onward(arrival)
    return f"?{urlencode(onward)}" if onward else ""


def _fresh_person(arrival: Arrival) -> SignedIn:
    """Who adds a factor; PolicyDenied unless somebody is signed in who has proven it lately."""
    if arrival.person is None or _due(arrival) is not None:
        raise PolicyDenied(STALE)
    return arrival.person


@base_page("GET", f"{PASSKEY}/options")
def begin_passkey(arrival: Arrival) -> Answer:
    """Options to create a passkey."""
    person = _fresh_person(arrival)
    return ceremony_data(arrival.services.second_factors.passkeys.begin_registration(person.user_id, person.login))


@base_page("POST", PASSKEY)
def add_passkey(arrival: Arrival) -> Answer:
    """Store the passkey that the browser has created."""
    person, request = _fresh_person(arrival), arrival.request
    try:
        codes = arrival.services.second_factors.finish_passkey(
            person, request.field("token"), request.field("response"), request.field("name")
        )
    except ApplianceError as error:
        return _choice(arrival, person, error)
    return _added(arrival, person, codes)


@base_page("GET", APP)
def show_app(arrival: Arrival) -> Answer:
    """The secret of a new app, as a picture to scan and as text."""
    if (due := _due(arrival)) is not None or arrival.person is None:
        return due or Redirect("/sign-in")
    new = arrival.services.second_factors.begin_app(arrival.person.user_id, arrival.person.login)
    return _app_page(arrival, new)


def _app_page(arrival: Arrival, new: apps.NewApp, problem: ApplianceError | None = None) -> Page:
    grouped = " ".join(new.secret[start : start + 4] for start in range(0, len(new.secret), 4))
    values = {
        "new": new, "secret": grouped, "picture": apps.draw_qr_code(new.uri), "problem": problem, "query": _query(arrival),
        "name": arrival.request.field("name"),
    }  # fmt: skip
    return Page("base/factor_app.html", values, problem.status if problem else 200)


@base_page("POST", APP)
def add_app(arrival: Arrival) -> Answer:
    """Store the app, if it shows the right code."""
    person, request, second_factors = _fresh_person(arrival), arrival.request, arrival.services.second_factors
    token = request.field("token")
    try:
        new = second_factors.continue_app(person.user_id, person.login, token)
        codes = second_factors.finish_app(person, token, request.field("name"), request.field("code"))
    except ApplianceError as error:
        if error.details:
            return _app_page(arrival, new, error)
        return _choice(arrival, person, error)
    return _added(arrival, person, codes)


def _added(arrival: Arrival, person: SignedIn, codes: list[str]) -> Page:
    values = {
        "codes": codes, "target": _target(arrival, person), "action": "/factors/recovery-codes",
        "sealed": recovery_codes.seal_codes(arrival.services.sealer, person.user_id, codes),
    }  # fmt: skip
    return Page("base/factor_added.html", values, 201)


@base_page("POST", "/factors/recovery-codes")
def download_codes(arrival: Arrival) -> Answer:
    """The recovery codes of the page as a text file."""
    if arrival.person is None:
        return Redirect("/sign-in")
    return recovery_codes.make_file(arrival.services, arrival.person, arrival.request.field("codes"))
