"""Cookies and hosts of a session: one on the base host, one per tenant host, a one-time code in between."""

import hmac
import secrets
from urllib.parse import urlencode

from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.solutions.services import Services
from appliance.tenants import people
from appliance.tenants.hosts import split_host
from appliance.tenants.people import SignedIn

from .routing import Asked, Redirect

COOKIE = "__Host-gos"
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
    return people.find_session(
        services.sealer, token, asked.tenant, lifetime_ms=lifetime_ms(services.config), request_id=asked.request_id
    )


def open_on(services: Services, user_id: str, tenant: str | None) -> str:
    """A new session; answers the cookie's value."""
    return people.open_session(services.sealer, user_id, tenant, kind="session", lifetime_ms=lifetime_ms(services.config))


def replace_on_base(services: Services, asked: Asked, user_id: str) -> dict[str, str]:
    """The cookies of a new session of the base host, whose earlier one ends."""
    if old := asked.cookies.get(COOKIE):
        people.close_session(services.sealer, old)
    return {COOKIE: open_on(services, user_id, None)}


def safe_target(target: str) -> str:
    """A path of the console to go to after sign-in; anything else becomes its first page."""
    plain = target.startswith("/console/") and target.isascii() and target.isprintable() and not {"\\", " "} & set(target)
    plain = plain and "//" not in target
    return target if plain and len(target) < 2000 else "/console/"


def ask_base(services: Services, asked: Asked) -> Redirect:
    """Send a visitor without a session to the base host; the state ties the answer to this very browser."""
    state = secrets.token_urlsafe(16)
    target = safe_target(f"{asked.path}?{asked.query}".rstrip("?")) if asked.method == "GET" else "/console/"
    query = urlencode({"tenant": asked.tenant, "state": state, "to": target})
    return Redirect(f"{services.config.base_url}/hand-over?{query}", {STATE_COOKIE: state})


def join(services: Services, asked: Asked, user_id: str, tenant: str) -> Redirect:
    """To a tenant whose member somebody has just become, signed in on the base host; the code says who that is."""
    code = people.open_session(services.sealer, user_id, tenant, kind="code", lifetime_ms=people.CODE_MS)
    held = replace_on_base(services, asked, user_id)
    return Redirect(f"{services.config.tenant_url(tenant)}/console/joined?{urlencode({'code': code})}", held)


def begin_anew(services: Services, asked: Asked) -> Redirect:
    """To the console; a session of somebody else than the code was made for ends first, so that nobody works on as them."""
    user_id = people.redeem_code(services.sealer, asked.args.get("code", ""), asked.tenant or "")
    person = find_person(services, asked)
    if user_id is None or person is None or person.user_id == user_id:
        return Redirect("/console/")
    people.close_session(services.sealer, asked.cookies.get(COOKIE, ""))
    return Redirect("/console/", {COOKIE: ""})


def hand_over(services: Services, person: SignedIn, asked: Asked) -> Redirect:
    """To the tenant's host with a one-time code; NotFound unless the person is a member there."""
    tenant = asked.args.get("tenant", "")
    if tenant not in [row.id for row, _ in people.tenants_of(person.user_id)]:
        raise NotFound(f"there is no tenant {tenant[:40]!r} that you belong to; choose one of yours")
    code = people.open_session(services.sealer, person.user_id, tenant, kind="code", lifetime_ms=people.CODE_MS)
    query = urlencode({"code": code, "state": asked.args.get("state", ""), "to": safe_target(asked.args.get("to", ""))})
    return Redirect(f"{services.config.tenant_url(tenant)}/console/enter?{query}")


def enter(services: Services, asked: Asked) -> Redirect:
    """Exchange the one-time code for a session of this tenant's host; anything wrong starts over."""
    state, expected = asked.args.get("state", ""), asked.cookies.get(STATE_COOKIE, "")
    if not expected or not hmac.compare_digest(state.encode(), expected.encode()):
        return Redirect("/console/", {STATE_COOKIE: ""})
    user_id = people.redeem_code(services.sealer, asked.args.get("code", ""), asked.tenant or "")
    if user_id is None:
        return Redirect("/console/", {STATE_COOKIE: ""})
    token = open_on(services, user_id, asked.tenant)
    return Redirect(safe_target(asked.args.get("to", "")), {COOKIE: token, STATE_COOKIE: ""})


def leave(services: Services, person: SignedIn, asked: Asked) -> Redirect:
    """End the tenant host's session and let the base host end its own; the code proves that the person asked for it."""
    people.close_session(services.sealer, asked.cookies.get(COOKIE, ""))
    tenant = asked.tenant or ""
    code = people.open_session(services.sealer, person.user_id, tenant, kind="code", lifetime_ms=people.CODE_MS)
    return Redirect(f"{services.config.base_url}/sign-out?{urlencode({'tenant': tenant, 'code': code})}", {COOKIE: ""})
