"""Sessions across hosts: one on the base host and one per tenant host, each with its own cookie.

Signing in on the base host opens a session there; a one-time code carries the sign-in over to the tenant's host.
"""

import hmac
import secrets
from urllib.parse import urlencode

from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence
from appliance.core.targets import is_own_path
from appliance.tenants import Person, SignedIn, people
from appliance.tenants.sign_in import Client, devices, read_client, sessions
from appliance.web import Services

from .routing import ConsoleRequest, Redirect

COOKIE = "__Host-gos"
DEVICE_COOKIE = "__Host-gos-device"
STATE_COOKIE = "__Host-gos-enter"
PROVIDER_COOKIE = "__Host-gos-provider"
FACTOR_COOKIE = "__Host-gos-factor"
HOUR_MS = 3_600_000
SIGN_OUT = "/console/sign-out"


def lifetime_ms(config: Config) -> int:
    """How long an unused session lasts, in milliseconds."""
    return config.console.session_hours * HOUR_MS


def find_person(services: Services, request: ConsoleRequest) -> SignedIn | None:
    """The person who is signed in on the requested host; None without a valid session.

    A session that a trusted proxy has opened ends when the proxy sends another login.
    """
    token = request.cookies.get(COOKIE, "")
    if not token:
        return None
    use = sessions.SessionUse(request.request_id, request.address, services.config.console.sign_in_days * 24 * HOUR_MS)
    person = sessions.find_session(services.sealer, token, request.tenant, lifetime_ms=lifetime_ms(services.config), use=use)
    sent = request.http.proxy_login
    if person is not None and sent is not None and services.proxy_sign_in.is_another(person, sent):
        sessions.close_sign_in(services.sealer, token)
        return None
    return person


def client_of(request: ConsoleRequest) -> Client:
    """The browser that sent the request."""
    return read_client(request.http.headers.get("user-agent", ""), request.address)


def sign_in(services: Services, request: ConsoleRequest, checked: Person) -> dict[str, str]:
    """Start a new sign-in on the base host for a person who was checked; returns its cookies.  SignInFailed.

    The browser's previous sign-in ends on every host.
    """
    close_previous(services, request)
    return {COOKIE: services.single_sign_on.sign_in_locally(checked, client_of(request))}


def close_previous(services: Services, request: ConsoleRequest) -> None:
    """End the browser's previous sign-in on every host, if it has one."""
    if old := request.cookies.get(COOKIE):
        sessions.close_sign_in(services.sealer, old)


def find_device(services: Services, request: ConsoleRequest, login: str) -> str:
    """The id of this browser if this login has been used in it before; empty otherwise."""
    return devices.find_device(services.sealer, request.cookies.get(DEVICE_COOKIE, ""), login)


def remember_device(services: Services, request: ConsoleRequest, login: str) -> dict[str, str]:
    """The cookie that identifies this browser at the next sign-in."""
    return {DEVICE_COOKIE: devices.remember_device(services.sealer, request.cookies.get(DEVICE_COOKIE, ""), login)}


def cookie_seconds(name: str) -> int | None:
    """The Max-Age of a cookie in seconds; None for a session cookie."""
    return devices.RETENTION_DAYS * 86_400 if name == DEVICE_COOKIE else None


def safe_target(target: str) -> str:
    """The console path to open after sign-in; anything that is not one becomes the home page."""
    return target if target.startswith("/console/") and is_own_path(target) else "/console/"


def redirect_to_sign_in(services: Services, request: ConsoleRequest) -> Redirect:
    """Redirect a visitor without a session to the base host; the state binds the reply to this browser."""
    state = secrets.token_urlsafe(16)
    target = safe_target(f"{request.path}?{request.query}".rstrip("?")) if request.method == "GET" else "/console/"
    query = urlencode({"tenant": request.tenant, "state": state, "to": target})
    return Redirect(f"{services.config.base_url}/hand-over?{query}", {STATE_COOKIE: state})


def join_tenant(services: Services, request: ConsoleRequest, user_id: str, tenant: str) -> Redirect:
    """Redirect a person who has just become a member to the tenant's host, with a one-time code that identifies them."""
    root = sessions.new_root()
    close_previous(services, request)
    lifetime = lifetime_ms(services.config)
    token = sessions.begin_sign_in(services.sealer, user_id, root=root, lifetime_ms=lifetime, client=client_of(request))
    cookies = {COOKIE: token}
    code = sessions.create_code(services.sealer, user_id, tenant, "joined", root=root)
    return Redirect(f"{services.config.tenant_url(tenant)}/console/joined?{urlencode({'code': code})}", cookies)


def finish_join(services: Services, request: ConsoleRequest) -> Redirect:
    """Redirect a new member to the console.

    If another user is signed in on this host, their session ends first, so that the new member does not act as that user.
    """
    joined = sessions.redeem_code(services.sealer, request.args.get("code", ""), request.tenant or "", "joined")
    person = find_person(services, request)
    if joined is None or person is None or person.user_id == joined.user_id:
        return Redirect("/console/")
    sessions.close_sign_in(services.sealer, request.cookies.get(COOKIE, ""))
    return Redirect("/console/", {COOKIE: ""})


def hand_over(services: Services, person: SignedIn, request: ConsoleRequest) -> Redirect:
    """Redirect to the tenant's host with a one-time code; NotFound unless the person is a member of the tenant."""
    tenant = request.args.get("tenant", "")
    if tenant not in [row.id for row, _ in people.tenants_of(person.user_id)]:
        raise NotFound(Sentence("you are not a member of the tenant %(tenant)s; choose one of yours", tenant=repr(tenant[:40])))
    code = sessions.create_code(services.sealer, person.user_id, tenant, "enter", root=person.root)
    query = urlencode({"code": code, "state": request.args.get("state", ""), "to": safe_target(request.args.get("to", ""))})
    return Redirect(f"{services.config.tenant_url(tenant)}/console/enter?{query}")


def enter(services: Services, request: ConsoleRequest) -> Redirect:
    """Exchange the one-time code for a session on this tenant's host; an invalid code or state restarts the sign-in."""
    state, expected = request.args.get("state", ""), request.cookies.get(STATE_COOKIE, "")
    if not expected or not hmac.compare_digest(state.encode(), expected.encode()):
        return Redirect("/console/", {STATE_COOKIE: ""})
    code, lifetime = request.args.get("code", ""), lifetime_ms(services.config)
    token = sessions.enter(services.sealer, code, request.tenant or "", lifetime_ms=lifetime, client=client_of(request))
    if token is None:
        return Redirect("/console/", {STATE_COOKIE: ""})
    return Redirect(safe_target(request.args.get("to", "")), {COOKIE: token, STATE_COOKIE: ""})


def sign_out(services: Services, person: SignedIn, request: ConsoleRequest) -> Redirect:
    """Sign this browser out on every host.

    The redirect lets the base host delete its own cookie; the code proves that the person requested it.
    """
    sessions.close_sign_in(services.sealer, request.cookies.get(COOKIE, ""))
    tenant = request.tenant or ""
    code = sessions.create_code(services.sealer, person.user_id, tenant, "sign-out", root="")
    return Redirect(f"{services.config.base_url}/sign-out?{urlencode({'tenant': tenant, 'code': code})}", {COOKIE: ""})
