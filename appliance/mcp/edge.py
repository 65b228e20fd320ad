"""/mcp at ASGI level, beside the other edges: admission, then the official SDK's transport of every revision."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from appliance.core import logs
from appliance.core.errors import ApplianceError, MethodNotAllowed, http_status
from appliance.solutions.services import Services
from appliance.tenants.scopes import SCOPES

from .admission import Admitted, Arrival, admit, refuse_browser
from .tools import ADMITTED

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
_UNAUTHENTICATED = 401
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class McpEdge:
    """What is asked of /mcp goes to `server`, in JSON or as events, as the client accepts; see `around`."""

    def __init__(self, services: Services, server: Server[Any]) -> None:
        self._services = services
        # Host and Origin are checked by the appliance's own host table, which knows tenants; the SDK's list knows exact names.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        managers = (
            StreamableHTTPSessionManager(
                server, json_response=as_json, stateless=True, security_settings=unchecked,
                max_request_body_size=services.config.limits.json_body_kb << 10,
            )
            for as_json in (True, False)
        )  # fmt: skip
        self._as_json, self._as_events = managers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """In the block requests are answered; at its end those under way are given up."""
        async with AsyncExitStack() as stack:
            for manager in (self._as_json, self._as_events):
                await stack.enter_async_context(manager.run())
            yield

    def around(self, app: App) -> App:
        """The application with /mcp beside it."""

        async def serve(scope: Scope, receive: Any, send: Any) -> None:
            path = scope["path"].rstrip("/") if scope["type"] == "http" else ""
            if path in (PATH, METADATA, METADATA + PATH):
                await self._answer(path, scope, receive, send)
            else:
                await app(scope, receive, send)

        return serve

    async def _answer(self, path: str, scope: Scope, receive: Any, send: Any) -> None:
        request_id = scope["gos.request_id"]
        with logs.log_context(request_id=request_id):
            arrival = _arrival(scope)
            try:
                if path != PATH:
                    await _send(send, 200, _metadata(scope, arrival), {"Cache-Control": "max-age=300"})
                    return
                admitted = await self._admit(scope, arrival)
            except ApplianceError as error:
                challenge = {"WWW-Authenticate": _challenge(arrival)} if error.status == _UNAUTHENTICATED else {}
                await _send(send, http_status(error), _refusal(error, request_id), {**error.headers, **challenge})
                return
            await self._serve(scope, receive, send, admitted)

    async def _admit(self, scope: Scope, arrival: Arrival) -> Admitted:
        refuse_browser(arrival)
        loop = asyncio.get_running_loop()
        admitted = await loop.run_in_executor(self._services.threads, partial(admit, self._services, arrival))
        if scope["method"] != "POST":  # without sessions there is no stream to open and nothing to end
            raise MethodNotAllowed("MCP is spoken here by POST", headers={"Allow": "POST", **admitted.headers})
        return admitted

    async def _serve(self, scope: Scope, receive: Any, send: Any, admitted: Admitted) -> None:
        """Hand over to the SDK: whose request it is, it binds its sealed state to."""
        who = AccessToken(token="", client_id=admitted.key_id, scopes=[], subject=admitted.caller.scope.tenant_id)
        inner = {**scope, "path": PATH, "user": AuthenticatedUser(who), ADMITTED: admitted.caller}
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        manager = self._as_events if b"text/event-stream" in accepted else self._as_json

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_encoded(admitted.headers.items())]
            await send(message)

        await AuthContextMiddleware(manager.handle_request)(inner, receive, sending)


def _arrival(scope: Scope) -> Arrival:
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
    origin = f"{scope['scheme']}://{headers.get('host', '')}"
    return Arrival(scope["gos.host"], scope["gos.request_id"], scope["gos.address"], headers, origin, scope.get("gos.trace", ""))


def _refusal(error: ApplianceError, request_id: str) -> bytes:
    """The envelope of CONTRACT § 3."""
    details = [{"pointer": each.pointer, "code": each.code, "message": each.message} for each in error.details]
    told = {"code": error.code, "message": error.message, "status": error.status, "request_id": request_id, "details": details}
    return json.dumps({"success": False, "error": {**told, **error.extra}}).encode()


def _challenge(arrival: Arrival) -> str:
    """RFC 6750 and RFC 9728: that a bearer token is wanted, and where it is said which."""
    wrong = "authorization" in arrival.headers or "x-api-key" in arrival.headers
    error = 'error="invalid_token", ' if wrong else ""
    return f'Bearer {error}resource_metadata="{arrival.origin}{METADATA}{PATH}"'


def _metadata(scope: Scope, arrival: Arrival) -> bytes:
    """RFC 9728.  There is no authorization server, so none is named: the token is an API key that a person issues."""
    told = {
        "resource": f"{arrival.origin}{PATH}",
        "resource_name": "Governed Operations Service",
        "resource_documentation": f"{arrival.origin}/api-docs/",
        "bearer_methods_supported": ["header"],
        "scopes_supported": sorted(SCOPES),
    }
    return json.dumps(told).encode()


async def _send(send: Any, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    told = {"Content-Type": "application/json", "Cache-Control": "no-store", "Content-Length": str(len(body)), **headers}
    await send({"type": "http.response.start", "status": status, "headers": list(_encoded(told.items()))})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: Iterable[tuple[str, str]]) -> Iterable[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin1"), value.encode("latin1")) for name, value in headers]
