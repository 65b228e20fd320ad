"""The visitor's own account: sessions, language and password."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Deferred, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.tenants import people, preferences
from appliance.tenants.sign_in import Attempt, SignInFailed, sessions

HERE = "/console/account"


@page("GET", "/account", scope=None)
def show_account(visit: Visit) -> Answer:
    """The account page with the sessions, the language and the form for a new password."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    services, token = visit.services, visit.request.cookies.get(session.COOKIE, "")
    open_sessions = sessions.list_sessions(services.sealer, visit.person.user_id, token)
    values = {
        "sessions": open_sessions, "problem": problem, "lifetime_ms": session.lifetime_ms(services.config),
        "languages": list(services.languages), "chosen": visit.person.language,
    }  # fmt: skip
    return Page("account.html", values, problem.status if problem else 200, problem.headers if problem else {})


@page("POST", "/account/password", scope=None)
def change_password(visit: Visit) -> Answer:
    """Change the password, which requires the current one; every session ends, including this one."""
    request = visit.request
    new = request.field("password")
    if new != request.field("again"):
        return _page(visit, ValidationFailed("the two new passwords differ; enter the same one twice", pointer="/again"))
    try:
        attempt = Attempt(visit.person.login, request.address, visit.person.user_id)
        change: Callable[[], object] = partial(people.change_password, visit.scope, visit.person.login, request.field("old"), new)
        work = visit.services.limits.password_checks.submit(attempt, change)
    except ApplianceError as error:
        return _page(visit, error)
    return Deferred(work, lambda: _after_change(visit, work))


def _after_change(visit: Visit, work: "Future[object]") -> Answer:
    try:
        work.result()
    except SignInFailed:
        return _page(visit, ValidationFailed("this is not your current password", pointer="/old"))
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(f"{visit.services.config.base_url}/sign-in", {session.COOKIE: ""})


@page("POST", "/account/language", scope=None)
def choose_language(visit: Visit) -> Answer:
    """Set the language of the visitor's pages; empty means the browser's language."""
    tag = visit.request.field("language")
    if tag and visit.services.languages.get(tag) is None:
        return _page(visit, ValidationFailed("choose a value from the list", pointer="/language"))
    preferences.choose_language(visit.scope, visit.person.user_id, tag)
    return Redirect(HERE)


@page("POST", "/account/sessions/end", scope=None)
def end_other_sessions(visit: Visit) -> Answer:
    """Sign out of every other session."""
    token = visit.request.cookies.get(session.COOKIE, "")
    sessions.close_other_sessions(visit.scope, visit.services.sealer, visit.person.user_id, token)
    return Redirect(HERE)
