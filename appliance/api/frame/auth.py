"""Authenticates a request by its API key."""

from appliance.core.errors import BrowserCallRefused, MissingApiKey, NotFound, ScopeMissing, UnknownHost
from appliance.core.scope import APPLIANCE
from appliance.core.sentences import Sentence
from appliance.tenants.keys import Caller
from appliance.web import Request, Services, authenticate_key, is_foreign_page

from .routing import Route


def refuse_browser(request: Request) -> None:
    """Raise BrowserCallRefused for a key sent by a web page: keys belong on servers, and pages use WebApp routes."""
    if "x-api-key" in request.headers and is_foreign_page(request.headers, request.origin):
        raise BrowserCallRefused(
            "an API key must not be used from a web page; call a WebApp route instead, which needs no key in the browser"
        )


def authenticate(services: Services, route: Route, request: Request, callers: list[Caller]) -> tuple[Caller, dict[str, str]]:
    """The caller, who is appended to `callers`, and its RateLimit headers; a coded error when the key is missing or wrong, has
    used up its rate or lacks the route's scope."""
    if route.is_of_appliance and request.host.kind != "base":
        raise NotFound("operations of the appliance are answered on its base host only; see domains.base")
    if request.host.kind == "unknown":
        raise UnknownHost("this host name is not served here; check domains.base and the tenant's name")
    text = request.headers.get("x-api-key", "").strip()
    if not text:
        raise MissingApiKey("send an API key in the header X-API-Key; `gos key add` or the console issues one")
    caller = authenticate_key(services, request, text, APPLIANCE if route.is_of_appliance else None)
    callers.append(caller)
    limits = services.limits.rates.count(caller).headers()
    if route.scope is not None and route.scope not in caller.scope.scopes:
        raise ScopeMissing(_why_missing(route.scope, caller), headers=limits, extra={"scope": route.scope})
    return caller, limits


def _why_missing(scope: str, caller: Caller) -> str:
    if scope in caller.withheld:
        return Sentence(
            "this key was issued with the scope %(scope)s, but the person, key or service account that issued it no longer has "
            "that scope; ask an owner to give it back, or to adopt the key in the console (API keys)",
            scope=scope,
        )
    return Sentence("this key lacks the scope %(scope)s; use or issue a key that has it", scope=scope)
