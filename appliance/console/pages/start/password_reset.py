"""A new password for whoever has forgotten theirs: the request for a link, and the page that the link leads to."""

from appliance.console.frame.routing import Answer, Arrival, Page, base_page
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.texts import mark_error
from appliance.tenants.sign_in import RESET_PATH

from .onward import canonical_url

REQUEST = "/password/forgotten"
OFF = mark_error("links for new passwords are not sent here; ask whoever runs the appliance")


@base_page("GET", REQUEST)
def show_request(arrival: Arrival) -> Answer:
    """The form for a link."""
    _check_offered(arrival)
    return _request_page(arrival)


def _check_offered(arrival: Arrival) -> None:
    if not arrival.services.password_resets.is_offered or canonical_url(arrival):
        raise NotFound(OFF)


def _request_page(arrival: Arrival, problem: ApplianceError | None = None, *, is_sent: bool = False) -> Page:
    values = {"login": arrival.request.field("login").strip(), "problem": problem, "is_sent": is_sent, "action": REQUEST}
    return Page("base/password_forgotten.html", values, problem.status if problem else 200, problem.headers if problem else {})


@base_page("POST", REQUEST)
def request_link(arrival: Arrival) -> Answer:
    """Send a link; the answer is the same for a login without an account."""
    _check_offered(arrival)
    request = arrival.request
    try:
        arrival.services.password_resets.request(request.field("login"), request.address)
    except ApplianceError as error:
        return _request_page(arrival, error)
    return _request_page(arrival, is_sent=True)


@base_page("GET", RESET_PATH)
def show_password(arrival: Arrival) -> Answer:
    """The form for the new password; opening it does not use the link, as scanners of mail open it, too."""
    return _password_page(arrival, arrival.request.args.get("token", ""))


def _password_page(arrival: Arrival, token: str, problem: ApplianceError | None = None) -> Page:
    person = arrival.services.password_resets.find(token)
    login = "" if person is None else person.login
    values = {"login": login, "token": token, "problem": problem, "action": RESET_PATH, "request": REQUEST}
    return Page("base/password_new.html", values, problem.status if problem else 200 if login else 410)


@base_page("POST", RESET_PATH)
def change_password(arrival: Arrival) -> Answer:
    """Store the new password."""
    request = arrival.request
    try:
        person = arrival.services.password_resets.replace(request.field("token"), request.field("password"))
    except ApplianceError as error:
        return _password_page(arrival, request.field("token"), error)
    return Page("base/password_replaced.html", {"login": person.login})
