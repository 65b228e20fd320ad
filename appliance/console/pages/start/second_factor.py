"""The second half of a sign-in, for accounts with a second factor; and sign-in with a passkey alone."""

from collections.abc import Mapping
from urllib.parse import urlencode

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Data, Page, Redirect, base_page
from appliance.core.errors import ApplianceError, InvalidRequest
from appliance.core.texts import mark_error
from appliance.tenants import Person
from appliance.tenants.second_factors import Ceremony, PendingFactor, pending
from appliance.tenants.sign_in import Attempt, SignInFailed, temporary_passwords

from .onward import OWN_PATH, continue_onward, onward_of

HERE = "/sign-in/factor"
OVER = mark_error("this sign-in was started too long ago, or in another browser; start again")


def ask_for_factor(arrival: Arrival, person: Person, onward: Mapping[str, str]) -> Redirect:
    """Ask somebody whose password was right for the second factor; a sealed cookie remembers who it is."""
    cookie = pending.seal_pending(arrival.services.sealer, person, onward)
    return Redirect(HERE, {session.FACTOR_COOKIE: cookie})


def ceremony_data(ceremony: Ceremony) -> Data:
    """What the script of passkeys gets."""
    return Data({"options": ceremony.options, "token": ceremony.token})


def _pending(arrival: Arrival) -> PendingFactor | None:
    return pending.open_pending(arrival.services.sealer, arrival.request.cookies.get(session.FACTOR_COOKIE, ""))


def _purpose(user_id: str) -> str:
    return f"second-factor/{user_id}"


@base_page("GET", HERE)
def show_factor(arrival: Arrival) -> Answer:
    """The ways to prove the second factor, for somebody whose password was right."""
    waiting = _pending(arrival)
    return Redirect("/sign-in", {session.FACTOR_COOKIE: ""}) if waiting is None else _page(arrival, waiting)


def _page(arrival: Arrival, waiting: PendingFactor, problem: ApplianceError | None = None) -> Page:
    methods = arrival.services.second_factors.methods_of(waiting.user_id)
    values = {
        "login": waiting.login, "methods": methods, "problem": problem, "action": HERE, "hidden": {},
        "options": f"{HERE}/options",
    }  # fmt: skip
    return Page("base/second_factor.html", values, problem.status if problem else 200, problem.headers if problem else {})


@base_page("GET", f"{HERE}/options")
def begin_factor(arrival: Arrival) -> Answer:
    """Options to use a passkey of the account whose password was right."""
    waiting = _pending(arrival)
    if waiting is None:
        raise InvalidRequest(OVER)
    return ceremony_data(arrival.services.second_factors.passkeys.begin(_purpose(waiting.user_id), waiting.user_id))


@base_page("POST", HERE)
def prove_factor(arrival: Arrival) -> Answer:
    """Check the code or the passkey, sign in, and continue."""
    request, services = arrival.request, arrival.services
    waiting = _pending(arrival)
    if waiting is None:
        return Redirect("/sign-in", {session.FACTOR_COOKIE: ""})
    factors = services.second_factors
    attempt = Attempt(waiting.login, request.address, session.find_device(services, request, waiting.login))
    try:
        person = pending.find_checked(services.sealer, waiting)
        if person is None:
            raise SignInFailed("the password has just been changed; sign in with the new one")
        if temporary_passwords.must_replace(person):
            return Redirect(OWN_PATH)
        if token := request.field("token"):
            factors.prove_by_passkey(attempt, (_purpose(waiting.user_id), waiting.user_id), token, request.field("response"))
        else:
            factors.prove_by_code(attempt, waiting.user_id, request.field("code"))
        cookies = session.sign_in(services, request, person) | session.remember_device(services, request, waiting.login)
    except ApplianceError as error:
        return _page(arrival, waiting, error)
    return continue_onward(arrival, (person.id, person.login), waiting.onward, {**cookies, session.FACTOR_COOKIE: ""})


@base_page("GET", "/sign-in/passkey/options")
def begin_passkey(arrival: Arrival) -> Answer:
    """Options to sign in with a passkey of any account."""
    return ceremony_data(arrival.services.second_factors.begin_sign_in())


@base_page("POST", "/sign-in/passkey")
def sign_in_with_passkey(arrival: Arrival) -> Answer:
    """Sign in the person whose passkey it is, without a password, and continue."""
    request, services = arrival.request, arrival.services
    try:
        person = services.second_factors.find_by_passkey(request.address, request.field("token"), request.field("response"))
        services.single_sign_on.check_login_allowed(person.login)
        cookies = session.sign_in(services, request, person) | session.remember_device(services, request, person.login)
    except ApplianceError as error:
        return _sign_in_page(arrival, error)
    return continue_onward(arrival, (person.id, person.login), onward_of(arrival), cookies)


def _sign_in_page(arrival: Arrival, problem: ApplianceError) -> Page:
    values = {"problem": problem, "back": f"/sign-in?{urlencode(onward_of(arrival))}".rstrip("?")}
    return Page("base/passkey_problem.html", values, problem.status, problem.headers)
