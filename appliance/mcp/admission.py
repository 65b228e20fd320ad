"""Admits requests to /mcp: they need an agent key of the host's tenant and must not come from a foreign web page."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from appliance.agents.tools import Caller
from appliance.core.errors import BrowserCallRefused, InvalidRequest, MissingApiKey, PolicyDenied
from appliance.governance import Subject
from appliance.tenants import HostMatch
from appliance.tenants.keys import keys
from appliance.web import Services

ADMITTED = "gos.admitted"
"""The key of the admitted caller in the ASGI scope."""
_LONGEST_KEY = 200


@dataclass(frozen=True)
class IncomingRequest:
    """What the front has established about a request, and its headers; `origin` is the appliance's own origin on this host."""

    host: HostMatch
    request_id: str
    address: str
    headers: Mapping[str, str]
    origin: str
    trace: str = ""


@dataclass(frozen=True)
class Admitted:
    """An authenticated caller, the id of its key, and the RateLimit headers for its response."""

    caller: Caller
    key_id: str
    headers: Mapping[str, str]


def refuse_browser(arrival: IncomingRequest) -> None:
    """Raise BrowserCallRefused for a request from a web page of another origin, which protects against DNS rebinding."""
    site, origin = arrival.headers.get("sec-fetch-site"), arrival.headers.get("origin")
    if site not in (None, "none", "same-origin") or origin not in (None, arrival.origin):
        raise BrowserCallRefused("MCP does not accept requests from web pages of other origins; use a client outside the browser")


def admit(services: Services, arrival: IncomingRequest) -> Admitted:
    """Authenticate the request's API key.

    Raises MissingApiKey, the errors of keys, RateLimited; InvalidRequest for two keys at once; PolicyDenied for a service key,
    because policies would decide differently about the same key over REST.
    """
    caller = keys.authenticate_key(
        services.sealer, key_of(arrival.headers)[:_LONGEST_KEY], tenant_id=arrival.host.tenant, address=arrival.address,
        request_id=arrival.request_id,
    )  # fmt: skip
    limits = services.limits.rates.count(caller).headers()
    if not caller.scope.has_agent_key:
        raise PolicyDenied(
            "this is a service key, but MCP accepts only agent keys; issue one with `gos key add --kind agent` or in the console, "
            "or have an administrator of API keys turn this one into an agent key, whose writes then need approval over REST too",
            headers=limits, extra={"reason": "service_key", "key_id": caller.key_id},
        )  # fmt: skip
    scope = replace(caller.scope, trace=arrival.trace) if arrival.trace else caller.scope
    return Admitted(Caller(scope, Subject(scope.actor, "mcp", credential="agent")), caller.key_id, limits)


def key_of(headers: Mapping[str, str]) -> str:
    """The key from X-API-Key, or from a bearer token for clients that can send nothing else; sending both is an error."""
    own = headers.get("x-api-key", "").strip()
    kind, _, token = headers.get("authorization", "").strip().partition(" ")
    if own and kind:
        raise InvalidRequest("send the API key in X-API-Key or in Authorization, not in both")
    if kind and kind.lower() != "bearer":
        raise MissingApiKey("send the API key in X-API-Key, or as Authorization: Bearer")
    text = own or token.strip()
    if not text:
        raise MissingApiKey("send an API key in the header X-API-Key; `gos key add` or the console issues one")
    return text
