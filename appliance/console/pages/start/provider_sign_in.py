"""Sign-in with an identity provider: to the provider, and back with its response."""

import hmac
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from appliance.console.frame import session
from appliance.console.frame.routing import Answer, Arrival, Deferred, Page, Redirect, base_page
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.errors import ApplianceError, NotFound, RateLimited
from appliance.core.texts import mark, mark_error
from appliance.tenants.oidc import ProviderFailed
from appliance.tenants.single_sign_on import PendingSignIn, ProviderSession

from .onward import canonical_url, continue_onward, onward_of

T = TypeVar("T")
log = logging.getLogger(__name__)
EXPIRED = mark_error("this sign-in was started in another browser, or too long ago; start again")
REFUSED = mark_error("the provider did not sign you in; try again, or ask its administrator")
NOT_DONE = mark_error("the sign-in at the provider did not work; try again, and if it fails again, tell your administrator")


class SignInExpired(ApplianceError):
    """The response does not belong to a sign-in that this browser started lately."""

    code, status = "sign_in_expired", 400


class ProviderRefused(ApplianceError):
    """The provider answered with an error instead of a code."""

    code, status = "provider_refused", 403


@base_page("GET", "/oidc/<provider>/start")
def go_to_provider(arrival: Arrival, provider: str) -> Answer:
    """Redirect to the provider; a sealed cookie binds its response to this browser."""
    request, services = arrival.request, arrival.services
    if canonical_url(arrival) or not request.http.can_hold_cookies:
        return Redirect("/sign-in")  # which says what is wrong with this address
    try:
        known = services.single_sign_on.find_provider(provider)
        onward = onward_of(arrival)
        work = services.single_sign_on.submit("start", request.address, lambda: services.single_sign_on.start(known, onward))
    except ApplianceError as error:
        return _problem(error)
    return Deferred(work, lambda: _after(known, work, lambda start: Redirect(start[0], {session.PROVIDER_COOKIE: start[1]})))


@base_page("GET", "/oidc/<provider>/callback")
def receive_response(arrival: Arrival, provider: str) -> Answer:
    """Check the provider's response, sign the person in, and continue as after a password."""
    request, single_sign_on = arrival.request, arrival.services.single_sign_on
    try:
        known = single_sign_on.find_provider(provider)
        pending = single_sign_on.open_pending(known, request.cookies.get(session.PROVIDER_COOKIE, ""))
        if pending is None or not _is_equal(pending.state, request.args.get("state", "")):
            raise SignInExpired(EXPIRED)
        if "code" not in request.args:
            log.warning("the provider %s did not sign somebody in: %s", known.id, request.args.get("error", "")[:100])
            raise ProviderRefused(REFUSED)
        work = single_sign_on.submit("callback", request.address, _finish(arrival, known, pending))
    except ApplianceError as error:
        return _problem(error)
    return Deferred(work, lambda: _after(known, work, lambda done: _enter(arrival, done)))


def _finish(arrival: Arrival, provider: IdentityProvider, pending: PendingSignIn) -> Callable[[], ProviderSession]:
    args, single_sign_on, client = arrival.request.args, arrival.services.single_sign_on, session.client_of(arrival.request)
    return lambda: single_sign_on.finish(provider, pending, args.get("code", ""), args.get("iss", ""), client)


def _enter(arrival: Arrival, signed_in: ProviderSession) -> Answer:
    session.close_previous(arrival.services, arrival.request)
    cookies = {session.COOKIE: signed_in.token, session.PROVIDER_COOKIE: ""}
    return continue_onward(arrival, (signed_in.user_id, signed_in.login), signed_in.onward, cookies)


def _after(provider: IdentityProvider, work: "Future[T]", then: Callable[[T], Answer]) -> Answer:
    """The answer to the result of work at a provider; what is wrong with the provider is for its administrator's eyes."""
    try:
        return then(work.result())
    except ProviderFailed as error:
        log.warning("nobody can sign in with the provider %s: %s", provider.id, error.message)
        return _problem(ProviderFailed(NOT_DONE))
    except ApplianceError as error:
        log.warning("the provider %s signed somebody in who was refused: %s", provider.id, error.message)
        return _problem(error)


def _problem(error: ApplianceError) -> Page:
    title = mark("Not found") if isinstance(error, NotFound) else mark("Not signed in")
    headers = error.headers if isinstance(error, RateLimited) else {}
    return Page("base/sign_in_problem.html", {"title": title, "problem": error, "local": ""}, error.status, headers)


def _is_equal(left: str, right: str) -> bool:
    return bool(left) and hmac.compare_digest(left.encode(), right.encode("utf-8", "replace"))
