"""Serves /mcp at the ASGI level: admits each request and passes it to the SDK's transport, loaded by the first request."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from appliance.core import logs
from appliance.core.errors import ApplianceError, InvalidJson, MethodNotAllowed, http_status
from appliance.core.json_text import refuse_doubled
from appliance.tenants import LARGE_BYTES, SCOPES
from appliance.web import Services

from .admission import Admitted, IncomingRequest, admit, refuse_browser

if TYPE_CHECKING:
    from .transport import Transport

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
_UNAUTHENTICATED = 401
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class McpEdge:
    """Handles requests to /mcp; see `around`.  `load` builds the transport, which takes half a second and 20 MB and is
    therefore deferred to the first request."""

    def __init__(self, services: Services, load: "Callable[[], Transport]") -> None:
        self._services, self._load = services, load
        self._requested = asyncio.Event()
        self._transport: asyncio.Future[Transport] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside the block; requests still in progress at its end are aborted."""
        serving = asyncio.create_task(self._run())
        try:
            yield
        finally:
            serving.cancel()
            self._transport.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    async def _run(self) -> None:
        """Run the transport in a single task, because it must be entered and left in the same one."""
        await self._requested.wait()
        try:
            transport = await asyncio.get_running_loop().run_in_executor(self._services.threads, self._load)
        except Exception as error:  # noqa: BLE001  raised to every request
            self._transport.set_exception(error)
            return
        async with transport.running():
            self._transport.set_result(transport)
            await asyncio.Event().wait()

    def around(self, app: App) -> App:
        """Wrap an application so that requests to /mcp are handled here."""

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
            try:
                await self._serve(scope, receive, send, admitted)
            except InvalidJson as error:
                await _send(send, http_status(error), _refusal(error, request_id), admitted.headers)

    async def _admit(self, scope: Scope, arrival: IncomingRequest) -> Admitted:
        refuse_browser(arrival)
        loop = asyncio.get_running_loop()
        admitted = await loop.run_in_executor(self._services.threads, partial(admit, self._services, arrival))
        if scope["method"] != "POST":  # without sessions there is no stream to open (GET) and nothing to end (DELETE)
            raise MethodNotAllowed("MCP requests must use POST", headers={"Allow": "POST", **admitted.headers})
        return admitted

    async def _serve(self, scope: Scope, receive: Any, send: Any, admitted: Admitted) -> None:
        self._requested.set()
        transport = await asyncio.shield(self._transport)
        receive = await self._buffered(receive, scope["gos.host"].tenant or "")

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_encoded(admitted.headers.items())]
            await send(message)

        await transport.serve({**scope, "path": PATH}, receive, sending, admitted)

    async def _buffered(self, receive: Any, tenant_id: str) -> Any:
        """Read the body and return a `receive` that replays it; raises InvalidJson if an object has a member twice.

        Parsers disagree about duplicate members: the SDK takes the last one, others the first.  A body that is too large or
        not valid JSON is left for the SDK to refuse.
        """
        most = self._services.config.limits.json_body_kb << 10
        messages, size, more = deque[Any](), 0, True
        while more and size <= most:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        raw = b"".join(message.get("body", b"") for message in messages)
        if len(raw) < LARGE_BYTES:
            _refuse_doubled(raw)
        else:
            async with self._services.limits.large_bodies.turn(tenant_id, len(raw)):
                await asyncio.get_running_loop().run_in_executor(self._services.threads, _refuse_doubled, raw)

        async def replay() -> Any:
            return messages.popleft() if messages else await receive()

        return replay


def _refuse_doubled(raw: bytes) -> None:
    with suppress(ValueError):
        refuse_doubled(raw, from_json(raw))


def _arrival(scope: Scope) -> IncomingRequest:
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
    origin = f"{scope['scheme']}://{headers.get('host', '')}"
    return IncomingRequest(
        scope["gos.host"], scope["gos.request_id"], scope["gos.address"], headers, origin, scope.get("gos.trace", "")
    )


def _refusal(error: ApplianceError, request_id: str) -> bytes:
    """The error envelope of docs/contract.md § 3."""
    details = [{"pointer": each.pointer, "code": each.code, "message": each.message} for each in error.details]
    body = {"code": error.code, "message": error.message, "status": error.status, "request_id": request_id, "details": details}
    return json.dumps({"success": False, "error": {**body, **error.extra}}).encode()


def _challenge(arrival: IncomingRequest) -> str:
    """The WWW-Authenticate value (RFC 6750, RFC 9728): asks for a bearer token and points to the resource metadata."""
    wrong = "authorization" in arrival.headers or "x-api-key" in arrival.headers
    error = 'error="invalid_token", ' if wrong else ""
    return f'Bearer {error}resource_metadata="{arrival.origin}{METADATA}{PATH}"'


def _metadata(scope: Scope, arrival: IncomingRequest) -> bytes:
    """The protected resource metadata (RFC 9728).  It names no authorization server: the token is an API key."""
    metadata = {
        "resource": f"{arrival.origin}{PATH}",
        "resource_name": "Governed Operations Service",
        "resource_documentation": f"{arrival.origin}/api-docs/",
        "bearer_methods_supported": ["header"],
        "scopes_supported": sorted(SCOPES),
    }
    return json.dumps(metadata).encode()


async def _send(send: Any, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    merged = {"Content-Type": "application/json", "Cache-Control": "no-store", "Content-Length": str(len(body)), **headers}
    await send({"type": "http.response.start", "status": status, "headers": list(_encoded(merged.items()))})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: Iterable[tuple[str, str]]) -> Iterable[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin1"), value.encode("latin1")) for name, value in headers]
