"""Serves /mcp at the ASGI level: admits each request and passes it to the SDK's transport, loaded by the first request."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_core import from_json

from appliance.core import clock, logs
from appliance.core.errors import ApplianceError, InvalidJson, MethodNotAllowed
from appliance.core.json_text import refuse_doubled
from appliance.tenants import LARGE_BYTES, SCOPES
from appliance.web import App, Message, Receive, Request, Response, Scope, Send, Services, error_response, in_thread, mount

from .admission import Admitted, admit, refuse_browser

if TYPE_CHECKING:
    from .transport import Transport

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
_UNAUTHENTICATED = 401


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
            transport = await in_thread(self._services.threads, self._load)
        except Exception as error:  # noqa: BLE001  raised to every request
            self._transport.set_exception(error)
            return
        async with transport.running():
            self._transport.set_result(transport)
            await asyncio.Event().wait()

    def around(self, app: App) -> App:
        """Wrap an application so that requests to /mcp are handled here."""
        return mount((PATH, METADATA, METADATA + PATH), self._answer, app)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, request = scope["path"].rstrip("/"), Request.of(scope, receive)
        with logs.log_context(request_id=request.request_id):
            try:
                if path != PATH:
                    await _send(send, Response(200, _metadata(request), {"Content-Type": "application/json"}), _CACHED)
                    return
                admitted = await self._admit(request)
            except ApplianceError as error:
                challenge = {"WWW-Authenticate": _challenge(request)} if error.status == _UNAUTHENTICATED else {}
                await _send(send, error_response(error, request.request_id), challenge)
                return
            try:
                await self._serve(request, receive, send, admitted)
            except InvalidJson as error:
                await _send(send, error_response(error, request.request_id), admitted.headers)

    async def _admit(self, request: Request) -> Admitted:
        refuse_browser(request)
        admitted = await in_thread(self._services.threads, admit, self._services, request)
        if request.method != "POST":  # without sessions there is no stream to open (GET) and nothing to end (DELETE)
            raise MethodNotAllowed("MCP requests must use POST", headers={"Allow": "POST", **admitted.headers})
        return admitted

    async def _serve(self, request: Request, receive: Receive, send: Send, admitted: Admitted) -> None:
        self._requested.set()
        transport = await asyncio.shield(self._transport)
        receive = await self._buffered(receive, request.tenant)
        started = clock.monotonic()
        limits = Response(200, headers=admitted.headers).encoded_headers()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                if admitted.key is not None:
                    answered = (request.method, PATH, int(message["status"]), (clock.monotonic() - started) * 1000)
                    self._services.limits.key_requests.add(admitted.key, answered, request.address)
                message["headers"] = [*message.get("headers", []), *limits]
            await send(message)

        await transport.serve({**request.scope, "path": PATH}, receive, sending, admitted)

    async def _buffered(self, receive: Receive, tenant_id: str) -> Receive:
        """Read the body and return a `receive` that replays it; raises InvalidJson if an object has a member twice.

        Parsers disagree about duplicate members: the SDK takes the last one, others the first.  A body that is too large or
        not valid JSON is left for the SDK to refuse.
        """
        most = self._services.config.limits.json_body_kb << 10
        messages, size, more = deque[Message](), 0, True
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
                await in_thread(self._services.threads, _refuse_doubled, raw)

        async def replay() -> Message:
            return messages.popleft() if messages else await receive()

        return replay


_CACHED = {"Cache-Control": "max-age=300"}


def _refuse_doubled(raw: bytes) -> None:
    with suppress(ValueError):
        refuse_doubled(raw, from_json(raw))


def _challenge(request: Request) -> str:
    """The WWW-Authenticate value (RFC 6750, RFC 9728): asks for a bearer token and points to the resource metadata."""
    wrong = "authorization" in request.headers or "x-api-key" in request.headers
    error = 'error="invalid_token", ' if wrong else ""
    return f'Bearer {error}resource_metadata="{request.origin}{METADATA}{PATH}"'


def _metadata(request: Request) -> bytes:
    """The protected resource metadata (RFC 9728).  It names no authorization server: the token is an API key."""
    metadata = {
        "resource": f"{request.origin}{PATH}",
        "resource_name": "Governed Operations Service",
        "resource_documentation": f"{request.origin}/api-docs/",
        "bearer_methods_supported": ["header"],
        "scopes_supported": sorted(SCOPES),
    }
    return json.dumps(metadata).encode()


async def _send(send: Send, response: Response, headers: Mapping[str, str]) -> None:
    await replace(response, headers={"Cache-Control": "no-store", **response.headers, **headers}).send(send)
