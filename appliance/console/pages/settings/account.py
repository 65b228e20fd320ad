"""The visitor's own account: sessions, language and password."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from urllib.parse import urlencode

from appliance.console.frame import session, step_up
from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.texts import gettext as _
from appliance.tenants import people, preferences
from appliance.tenants.second_factors import factors
from appliance.tenants.sign_in import Attempt, Client, SignInFailed, sessions

HERE = "/console/account"


@page("GET", "/account", scope=None)
def show_account(visit: Visit) -> Answer:
    """The account page with the sessions, the language and the form for a new password."""
    return account_page(visit)


def account_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    """The account page, with what is wrong about a form that was sent from it."""
    services, token = visit.services, visit.request.cookies.get(session.COOKIE, "")
    values = {
        "sign_ins": sessions.list_sign_ins(services.sealer, visit.person.user_id, token), "problem": problem,
        "client_name": client_name, "languages": list(services.languages), "chosen": visit.person.language,
        "has_password": people.has_password(visit.person.user_id), "factors": factors.list_factors(visit.person.user_id),
        "methods": services.second_factors.methods_of(visit.person.user_id),
        "add_factor": f"{services.config.base_url}{step_up.ADD}?{urlencode({'tenant': visit.scope.tenant_id})}",
    }  # fmt: skip
    return Page("account.html", values, problem.status if problem else 200, problem.headers if problem else {})


def client_name(client: Client) -> str:
    """Such as "Firefox on Linux"."""
    if client.browser and client.system:
        return _("%(browser)s on %(system)s", browser=client.browser, system=client.system)
    return client.browser or client.system or _("Unknown browser")


@page("POST", "/account/password", scope=None)
def change_password(visit: Visit) -> Answer:
    """Change the password, which requires the current one; every session ends, including this one."""
    request = visit.request
    new = request.field("password")
    if new != request.field("again"):
        return account_page(visit, ValidationFailed("the two new passwords differ; enter the same one twice", pointer="/again"))
    try:
        attempt = Attempt(visit.person.login, request.address, visit.person.user_id)
        change: Callable[[], object] = partial(people.change_password, visit.scope, visit.person.login, request.field("old"), new)
        work = visit.services.limits.password_checks.submit(attempt, change)
    except ApplianceError as error:
        return account_page(visit, error)
    return Deferred(work, lambda: _after_change(visit, work))


def _after_change(visit: Visit, work: "Future[object]") -> Answer:
    try:
        work.result()
    except SignInFailed:
        return account_page(visit, ValidationFailed("this is not your current password", pointer="/old"))
    except ApplianceError as error:
        return account_page(visit, error)
    return Redirect(f"{visit.services.config.base_url}/sign-in", {session.COOKIE: ""})


@page("POST", "/account/language", scope=None)
def choose_language(visit: Visit) -> Answer:
    """Set the language of the visitor's pages; empty means the browser's language."""
    tag = visit.request.field("language")
    if tag and visit.services.languages.get(tag) is None:
        return account_page(visit, ValidationFailed("choose a value from the list", pointer="/language"))
    preferences.choose_language(visit.scope, visit.person.user_id, tag)
    return Redirect(HERE)


@page("POST", "/account/sessions/end", scope=None, step_up=True, asks_password=True)
def end_other_sessions(visit: Visit) -> Answer:
    """Sign out of every other session."""
    token = visit.request.cookies.get(session.COOKIE, "")
    sessions.close_other_sessions(visit.scope, visit.services.sealer, visit.person.user_id, token)
    return Redirect(HERE)


@page("POST", "/account/sessions/<sign_in_id>/end", scope=None, step_up=True, asks_password=True)
def end_sign_in(visit: Visit, sign_in_id: str) -> Answer:
    """End one sign-in on every host; without effect if it has ended already."""
    sessions.close_one_sign_in(visit.scope, visit.services.sealer, visit.person.user_id, sign_in_id)
    return Redirect(HERE)


@page("POST", "/account/sessions/end-all", scope=None, step_up=True, asks_password=True)
def end_all_sessions(visit: Visit) -> Answer:
    """Sign out everywhere, here as well."""
    sessions.close_all_sessions(visit.scope, visit.person.user_id)
    return Redirect(f"{visit.services.config.base_url}/sign-in", {session.COOKIE: ""})
