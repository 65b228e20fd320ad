"""Authenticates a request by its API key."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace

from appliance.core.errors import BrowserCallRefused, MissingApiKey, ScopeMissing, UnknownHost
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants import AdmissionSlot, HostMatch, NoSlot, release_nothing
from appliance.tenants.keys import keys
from appliance.web import Services

from .routing import Route, Upload

LONGEST_KEY = 200


@dataclass(frozen=True)
class IncomingRequest:
    """A request: what the ASGI front has established about it, and its own parts; authenticating it appends to `callers`."""

    host: HostMatch
    request_id: str
    address: str
    headers: Mapping[str, str]
    args: Mapping[str, list[str]]
    path: str
    raw: bytes
    upload: Upload | None = None
    admitted: tuple[keys.Caller, dict[str, str]] | None = None
    stream: AsyncIterator[bytes] | None = None
    callers: list[TenantScope] = field(default_factory=list)
    trace: str = ""
    place: AdmissionSlot = field(default_factory=NoSlot)
    end_turn: Callable[[], None] = release_nothing


def refuse_browser(headers: Mapping[str, str], own_origin: str) -> None:
    """Raise BrowserCallRefused for a key sent by a web page: keys belong on servers, and pages use WebApp routes."""
    if "x-api-key" not in headers:
        return
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site not in (None, "none", "same-origin") or origin not in (None, own_origin):
        raise BrowserCallRefused(
            "an API key must not be used from a web page; call a WebApp route instead, which needs no key in the browser"
        )


def authenticate(services: Services, route: Route, incoming: IncomingRequest) -> tuple[keys.Caller, dict[str, str]]:
    """The caller and its RateLimit headers; a coded error when the key is missing or wrong, has used up its rate or lacks the
    route's scope."""
    host = incoming.host
    if host.kind == "unknown":
        raise UnknownHost("this host name is not served here; check domains.base and the tenant's name")
    text = incoming.headers.get("x-api-key", "").strip()
    if not text:
        raise MissingApiKey("send an API key in the header X-API-Key; `gos key add` or the console issues one")
    caller = keys.authenticate_key(
        services.sealer, text[:LONGEST_KEY], tenant_id=host.tenant, address=incoming.address, request_id=incoming.request_id
    )
    if incoming.trace:
        caller = replace(caller, scope=replace(caller.scope, trace=incoming.trace))
    incoming.callers.append(caller.scope)
    limits = services.limits.rates.count(caller).headers()
    if route.scope is not None and route.scope not in caller.scope.scopes:
        raise ScopeMissing(
            _why_missing(route.scope, caller),
            headers=limits,
            extra={"scope": route.scope},
        )
    return caller, limits


def _why_missing(scope: str, caller: keys.Caller) -> str:
    if scope in caller.withheld:
        return Sentence(
            "this key was issued with the scope %(scope)s, but the person who issued it no longer has that scope; ask "
            "an owner to adopt the key in the console (API keys)",
            scope=scope,
        )
    return Sentence("this key lacks the scope %(scope)s; use or issue a key that has it", scope=scope)
