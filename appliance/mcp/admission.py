"""Admits requests to /mcp: they need an agent key of the host's tenant and must not come from a foreign web page."""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.agents.tools import Caller
from appliance.core.errors import BrowserCallRefused, InvalidRequest, MissingApiKey, PolicyDenied
from appliance.governance import Subject
from appliance.tenants.keys import Caller as KeyCaller
from appliance.web import Request, Services, authenticate_key, is_foreign_page

ADMITTED = "gos.admitted"
"""The key of the admitted caller in the ASGI scope."""


@dataclass(frozen=True)
class Admitted:
    """An authenticated caller, the id of its key, and the RateLimit headers for its response.

    `key` is the caller if its requests are recorded.
    """

    caller: Caller
    key_id: str
    headers: Mapping[str, str]
    key: KeyCaller | None = None


def refuse_browser(request: Request) -> None:
    """Raise BrowserCallRefused for a request from a web page of another origin, which protects against DNS rebinding."""
    if is_foreign_page(request.headers, request.origin):
        raise BrowserCallRefused("MCP does not accept requests from web pages of other origins; use a client outside the browser")


def admit(services: Services, request: Request) -> Admitted:
    """Authenticate the request's API key.

    Raises MissingApiKey, the errors of keys, RateLimited; InvalidRequest for two keys at once; PolicyDenied for a service key,
    because policies would decide differently about the same key over REST.
    """
    caller = authenticate_key(services, request, key_of(request.headers))
    limits = services.limits.rates.count(caller).headers()
    if not caller.scope.has_agent_key:
        raise PolicyDenied(
            "this is a service key, but MCP accepts only agent keys; issue one with `gos key add --kind agent` or in the console, "
            "or have an administrator of API keys turn this one into an agent key, whose writes then need approval over REST too",
            headers=limits, extra={"reason": "service_key", "key_id": caller.key_id},
        )  # fmt: skip
    return Admitted(
        Caller(caller.scope, Subject(caller.scope.actor, "mcp", credential="agent")), caller.key_id, limits,
        key=caller if caller.records_requests else None,
    )  # fmt: skip


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
