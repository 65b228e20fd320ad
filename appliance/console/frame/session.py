"""Cookies and hosts of a session: one on the base host, one per tenant host, a one-time code in between."""

import hmac
import secrets
from urllib.parse import urlencode

from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence
from appliance.core.targets import is_own_path
from appliance.solutions import Services
from appliance.tenants import SignedIn, people, split_host
from appliance.tenants.sign_in import devices, sessions

from .routing import Asked, Redirect

COOKIE = "__Host-gos"
DEVICE_COOKIE = "__Host-gos-device"
STATE_COOKIE = "__Host-gos-enter"
HOUR_MS = 3_600_000
SIGN_OUT = "/console/sign-out"


def lifetime_ms(config: Config) -> int:
    """How long a session lasts without use."""
    return config.console.session_hours * HOUR_MS


def can_hold_cookies(asked: Asked) -> bool:
    """Whether a browser keeps `__Host-` cookies here: over HTTPS anywhere, over plain HTTP on localhost only."""
    name = split_host(asked.host)
    return asked.scheme == "https" or name == "localhost" or name.endswith(".localhost")


def find_person(services: Services, asked: Asked) -> SignedIn | None:
    """Who is signed in on the host that was asked."""
    token = asked.cookies.get(COOKIE, "")
    if not token:
        return None
    return sessions.find_session(
        services.sealer, token, asked.tenant, lifetime_ms=lifetime_ms(services.config), request_id=asked.request_id
    )


def open_on(services: Services, user_id: str, tenant: str | None, root: str | None = None) -> str:
    """A new session, of the sign-in `root` or a new one; answers the cookie's value."""
    return sessions.open_session(services.sealer, user_id, tenant, lifetime_ms=lifetime_ms(services.config), root=root)


def replace_on_base(services: Services, asked: Asked, user_id: str, root: str | None = None) -> dict[str, str]:
    """The cookies of a new sign-in on the base host; the browser's earlier one ends, on every host."""
    if old := asked.cookies.get(COOKIE):
        sessions.close_sign_in(services.sealer, old)
    return {COOKIE: open_on(services, user_id, None, root)}


def device_of(services: Services, asked: Asked, login: str) -> str:
    """The id of this browser, when somebody has signed in here with this login before; empty otherwise."""
    return devices.known_device(services.sealer, asked.cookies.get(DEVICE_COOKIE, ""), login)


def remember_device(services: Services, asked: Asked, login: str) -> dict[str, str]:
    """The cookie by which this browser is known at the next sign-in."""
    return {DEVICE_COOKIE: devices.remember_device(services.sealer, asked.cookies.get(DEVICE_COOKIE, ""), login)}


def cookie_seconds(name: str) -> int | None:
    """How long a browser keeps a cookie; None: as long as it is open."""
    return devices.KEPT_DAYS * 86_400 if name == DEVICE_COOKIE else None


def safe_target(target: str) -> str:
    """A path of the console to go to after sign-in; anything else becomes its first page."""
    return target if target.startswith("/console/") and is_own_path(target) else "/console/"


def ask_base(services: Services, asked: Asked) -> Redirect:
    """Send a visitor without a session to the base host; the state ties the answer to this very browser."""
    state = secrets.token_urlsafe(16)
    target = safe_target(f"{asked.path}?{asked.query}".rstrip("?")) if asked.method == "GET" else "/console/"
    query = urlencode({"tenant": asked.tenant, "state": state, "to": target})
    return Redirect(f"{services.config.base_url}/hand-over?{query}", {STATE_COOKIE: state})


def join(services: Services, asked: Asked, user_id: str, tenant: str) -> Redirect:
    """To a tenant whose member somebody has just become, signed in on the base host; the code says who that is."""
    root = sessions.new_root()
    held = replace_on_base(services, asked, user_id, root)
    code = sessions.open_code(services.sealer, user_id, tenant, "joined", root=root)
    return Redirect(f"{services.config.tenant_url(tenant)}/console/joined?{urlencode({'code': code})}", held)


def begin_anew(services: Services, asked: Asked) -> Redirect:
    """To the console; a session of somebody else than the code was made for ends first, so that nobody works on as them."""
    joined = sessions.redeem_code(services.sealer, asked.args.get("code", ""), asked.tenant or "", "joined")
    person = find_person(services, asked)
    if joined is None or person is None or person.user_id == joined.user_id:
        return Redirect("/console/")
    sessions.close_sign_in(services.sealer, asked.cookies.get(COOKIE, ""))
    return Redirect("/console/", {COOKIE: ""})


def hand_over(services: Services, person: SignedIn, asked: Asked) -> Redirect:
    """To the tenant's host with a one-time code; NotFound unless the person is a member there."""
    tenant = asked.args.get("tenant", "")
    if tenant not in [row.id for row, _ in people.tenants_of(person.user_id)]:
        raise NotFound(Sentence("there is no tenant %(tenant)s that you belong to; choose one of yours", tenant=repr(tenant[:40])))
    code = sessions.open_code(services.sealer, person.user_id, tenant, "enter", root=person.root)
    query = urlencode({"code": code, "state": asked.args.get("state", ""), "to": safe_target(asked.args.get("to", ""))})
    return Redirect(f"{services.config.tenant_url(tenant)}/console/enter?{query}")


def enter(services: Services, asked: Asked) -> Redirect:
    """Exchange the one-time code for a session of this tenant's host; anything wrong starts over."""
    state, expected = asked.args.get("state", ""), asked.cookies.get(STATE_COOKIE, "")
    if not expected or not hmac.compare_digest(state.encode(), expected.encode()):
        return Redirect("/console/", {STATE_COOKIE: ""})
    redeemed = sessions.redeem_code(services.sealer, asked.args.get("code", ""), asked.tenant or "", "enter")
    if redeemed is None:
        return Redirect("/console/", {STATE_COOKIE: ""})
    token = open_on(services, redeemed.user_id, asked.tenant, redeemed.root)
    return Redirect(safe_target(asked.args.get("to", "")), {COOKIE: token, STATE_COOKIE: ""})


def leave(services: Services, person: SignedIn, asked: Asked) -> Redirect:
    """Sign this browser out everywhere; the base host then takes its cookie back, and the code proves that the person asked."""
    sessions.close_sign_in(services.sealer, asked.cookies.get(COOKIE, ""))
    tenant = asked.tenant or ""
    code = sessions.open_code(services.sealer, person.user_id, tenant, "sign-out", root="")
    return Redirect(f"{services.config.base_url}/sign-out?{urlencode({'tenant': tenant, 'code': code})}", {COOKIE: ""})
