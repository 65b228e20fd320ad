"""Sign-in, choice of a tenant, the hand-over to its host, and sign-out."""

from concurrent.futures import Future
from urllib.parse import urlencode, urlsplit

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Deferred, Page, Redirect, Visit, base_page, page
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.texts import mark
from appliance.tenants import Person, people, split_host
from appliance.tenants.sign_in import Attempt, sessions

from . import provision, visiting


def _canonical_url(arrival: Arrival) -> str | None:
    """The base host's configured URL if the visitor used another name for it, such as its IP address; else None."""
    base = arrival.services.config.base_url
    return base if split_host(arrival.request.host) != urlsplit(base).hostname else None


@base_page("GET", "/")
def choose_tenant(arrival: Arrival) -> Answer:
    """The choice of tenants; redirects to the tenant if there is only one."""
    if home := _canonical_url(arrival):
        return Redirect(f"{home}/")
    if arrival.person is None:
        return Redirect("/sign-in")
    config = arrival.services.config
    mine = people.tenants_of(arrival.person.user_id)
    if len(mine) == 1:
        return Redirect(f"{config.tenant_url(mine[0][0].id)}/console/")
    rows = [(tenant, role, f"{config.tenant_url(tenant.id)}/console/") for tenant, role in mine]
    offered = provision.is_offered(arrival.services)
    return Page("base/tenants.html", {"person": arrival.person, "tenants": rows, "can_provision": offered})


@base_page("GET", "/sign-in")
def show_sign_in(arrival: Arrival) -> Answer:
    """The sign-in form, or the reason why signing in cannot work on this host."""
    if not arrival.request.http.can_hold_cookies and _canonical_url(arrival) is None:
        return Page("base/needs_https.html", {"host": arrival.request.host}, 426)
    if home := _canonical_url(arrival):
        return Redirect(f"{home}/sign-in")
    if arrival.person is not None:
        return Redirect("/")
    return _form(arrival, "")


def _onward(arrival: Arrival) -> dict[str, str]:
    """The URL parameters that say where to continue after sign-in: a tenant's host, or the host of a WebApp."""
    args = arrival.request.args
    return {name: args[name] for name in ("tenant", "host", "state", "to") if args.get(name)}


def _form(arrival: Arrival, login: str, problem: ApplianceError | None = None) -> Page:
    onward = _onward(arrival)
    where = onward.get("host", "") or onward.get("tenant", "")
    values = {"login": login, "problem": problem, "onward": urlencode(onward), "tenant": where}
    return Page("base/sign_in.html", values, problem.status if problem else 200, problem.headers if problem else {})


@base_page("POST", "/sign-in")
def sign_in(arrival: Arrival) -> Answer:
    """Check login and password, then continue to the tenant that the visitor came from, or to the choice of tenants."""
    request = arrival.request
    if not request.http.can_hold_cookies:
        return Page("base/needs_https.html", {"host": request.host}, 426)
    login = people.normalize_login(request.field("login"))
    attempt = Attempt(login, request.address, session.find_device(arrival.services, request, login))
    try:
        checks = arrival.services.limits.password_checks
        work = checks.submit(attempt, lambda: people.check_password(login, request.field("password")))
    except ApplianceError as error:
        return _form(arrival, request.field("login").strip(), error)
    return Deferred(work, lambda: _after_check(arrival, login, work))


def _after_check(arrival: Arrival, login: str, work: "Future[Person]") -> Answer:
    request, services = arrival.request, arrival.services
    try:
        person = work.result()
        cookies = session.sign_in(services, request, person) | session.remember_device(services, request, login)
    except ApplianceError as error:
        return _form(arrival, request.field("login").strip(), error)
    if provision.is_offered(services):
        provision.provide_tenant(services, person.id, login)
    onward = _onward(arrival)
    if "host" in onward:
        return Redirect(f"{visiting.SIGNED_IN}?{urlencode(onward)}", cookies)
    return Redirect(f"/hand-over?{urlencode(onward)}" if "tenant" in onward else "/", cookies)


@base_page("GET", "/hand-over")
def hand_over(arrival: Arrival) -> Answer:
    """Continue from a tenant's host without a session: to the sign-in form, or back to the tenant with a one-time code."""
    args = arrival.request.args
    if arrival.person is None:
        onward = urlencode({name: args.get(name, "") for name in ("tenant", "state", "to")})
        return Redirect(f"/sign-in?{onward}")
    try:
        return session.hand_over(arrival.services, arrival.person, arrival.request)
    except NotFound as error:
        return Page("base/problem.html", {"person": arrival.person, "title": mark("No such tenant"), "problem": error}, 404)


@page("GET", "/enter", scope=None, needs_session=False)
def enter(arrival: Arrival) -> Answer:
    """The second half of the hand-over: open a session on the tenant's host."""
    return session.enter(arrival.services, arrival.request)


@page("GET", "/joined", scope=None, needs_session=False)
def finish_join(arrival: Arrival) -> Answer:
    """Enter the console after accepting an invitation, as the user who accepted it."""
    return session.finish_join(arrival.services, arrival.request)


@page("POST", "/sign-out", scope=None)
def begin_sign_out(visit: Visit) -> Answer:
    """End the session on this host; the base host ends its own next."""
    return session.sign_out(visit.services, visit.person, visit.request)


@base_page("POST", "/sandbox")
def create_sandbox(arrival: Arrival) -> Answer:
    """Create a sandbox tenant for a person who is not a member of any tenant."""
    if arrival.person is None:
        return Redirect("/sign-in")
    if provision.is_offered(arrival.services):
        provision.provide_tenant(arrival.services, arrival.person.user_id, arrival.person.login)
    return Redirect("/")


@base_page("GET", "/sign-out")
def finish_sign_out(arrival: Arrival) -> Answer:
    """The second half of a sign-out from a tenant's host; the code proves that the person requested it."""
    args, services = arrival.request.args, arrival.services
    redeemed = sessions.redeem_code(services.sealer, args.get("code", ""), args.get("tenant", ""), "sign-out")
    if redeemed is None or (arrival.person is not None and arrival.person.user_id != redeemed.user_id):
        return Redirect("/")
    return _close_session(arrival)


@base_page("POST", "/sign-out")
def sign_out(arrival: Arrival) -> Answer:
    """Sign this browser out of every host."""
    return _close_session(arrival)


def _close_session(arrival: Arrival) -> Redirect:
    sessions.close_sign_in(arrival.services.sealer, arrival.request.cookies.get(session.COOKIE, ""))
    return Redirect("/sign-in", {session.COOKIE: ""})
