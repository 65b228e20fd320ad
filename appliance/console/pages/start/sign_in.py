"""Sign-in, choice of a tenant, the hand-over to its host, and sign-out."""

from concurrent.futures import Future
from functools import partial
from urllib.parse import urlencode

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Deferred, Page, Redirect, Visit, base_page, page
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.texts import mark
from appliance.tenants import Person, people
from appliance.tenants.sign_in import Attempt, sessions, temporary_passwords

from . import provision, proxy_sign_in, second_factor, temporary_password
from .onward import canonical_url, continue_onward, onward_of


@base_page("GET", "/", gives_access=True)
def choose_tenant(arrival: Arrival) -> Answer:
    """The choice of tenants; redirects to the tenant if there is only one."""
    if home := canonical_url(arrival):
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
    if not arrival.request.http.can_hold_cookies and canonical_url(arrival) is None:
        return Page("base/needs_https.html", {"host": arrival.request.host}, 426)
    if home := canonical_url(arrival):
        return Redirect(f"{home}/sign-in")
    if arrival.person is not None:
        return Redirect("/")
    sent = arrival.request.http.proxy_login
    if sent is not None and arrival.request.args.get("local") != "1":
        return proxy_sign_in.enter(arrival, sent)
    return _form(arrival, "", is_local=arrival.request.args.get("local") == "1")


def _form(arrival: Arrival, login: str, problem: ApplianceError | None = None, *, is_local: bool = False) -> Page:
    """The providers and the form for a password, which is behind a link while local accounts are off, unless `is_local`."""
    onward, single_sign_on = onward_of(arrival), arrival.services.single_sign_on
    where = onward.get("host", "") or onward.get("tenant", "")
    values = {
        "login": login, "problem": problem, "onward": urlencode(onward), "tenant": where,
        "providers": single_sign_on.providers, "has_local_accounts": single_sign_on.has_local_accounts,
        "has_directories": bool(arrival.services.directories.clients),
        "has_form": single_sign_on.has_local_accounts or bool(arrival.services.directories.clients) or is_local,
        "sends_links": arrival.services.password_resets.is_offered,
        "has_passkeys": arrival.services.second_factors.passkeys.are_available,
    }  # fmt: skip
    return Page("base/sign_in.html", values, problem.status if problem else 200, problem.headers if problem else {})


@base_page("POST", "/sign-in")
def sign_in(arrival: Arrival) -> Answer:
    """Check login and password, then continue to the tenant that the visitor came from, or to the choice of tenants."""
    request = arrival.request
    if not request.http.can_hold_cookies:
        return Page("base/needs_https.html", {"host": request.host}, 426)
    login = people.normalize_login(request.field("login"))
    try:
        work = _check_password(arrival, login, request.field("password"))
    except ApplianceError as error:
        return _form(arrival, request.field("login").strip(), error, is_local=True)
    return Deferred(work, lambda: _after_check(arrival, login, work))


def _check_password(arrival: Arrival, login: str, password: str) -> "Future[Person]":
    """Check the password here, or in the directories that this login may belong to."""
    request, services = arrival.request, arrival.services
    attempt = Attempt(login, request.address, session.find_device(services, request, login))
    checks, directories = services.limits.password_checks, services.directories
    route = directories.find_route(login)
    if not route.clients:
        services.single_sign_on.check_login_allowed(login)
        return checks.submit(attempt, lambda: people.check_password(login, password))
    locally = partial(checks.run_inside, lambda: people.check_password(login, password))
    return checks.submit(attempt, lambda: directories.sign_in(route, login, password, locally), waits=True)


def _after_check(arrival: Arrival, login: str, work: "Future[Person]") -> Answer:
    request, services = arrival.request, arrival.services
    try:
        person = work.result()
        if temporary_passwords.must_replace(person) and not services.directories.find_route(person.login).is_bound:
            return temporary_password.ask_for_password(arrival, person, onward_of(arrival))
        if services.second_factors.methods_of(person.id).is_needed:
            return second_factor.ask_for_factor(arrival, person, onward_of(arrival))
        cookies = session.sign_in(services, request, person) | session.remember_device(services, request, login)
    except ApplianceError as error:
        return _form(arrival, request.field("login").strip(), error, is_local=True)
    return continue_onward(arrival, (person.id, person.login), onward_of(arrival), cookies)


@base_page("GET", "/hand-over", gives_access=True)
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


@base_page("POST", "/sandbox", gives_access=True)
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
    after = proxy_sign_in.SIGNED_OUT if arrival.request.http.proxy_login is not None else "/sign-in"
    return Redirect(after, {session.COOKIE: ""})
