"""Complete ASGI responses, sent before any edge handles the request."""

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core.errors import ApplianceError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
# ASGI scope key: a `Visitor` set by the appliance itself for its own requests, so that no gate asks for a sign-in. Requests
# from outside cannot have it.
VISITOR = "gos.visitor"
# ASGI scope key: values for the request log, set by whoever responds: `route` and `execution_id`.
LOG_FIELDS = "gos.noted"


@dataclass(frozen=True)
class Exchange:
    """One ASGI request and the channel to respond to it."""

    scope: Scope
    receive: Receive
    send: Send


class TrackedSend:
    """A `send` that knows whether the response has started."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.started = True
        await self._send(message)


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Send a complete response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def error_document(error: ApplianceError, request_id: str) -> bytes:
    """The JSON body for a coded error, in the API's format."""
    payload = {"code": error.code, "message": error.message, "status": error.status, "request_id": request_id, "details": []}
    return json.dumps({"success": False, "error": payload}).encode()


async def refuse(send: Send, error: ApplianceError, request_id: str) -> None:
    """Send a coded error as a complete response."""
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    body = error_document(error, request_id)
    await answer(send, error.status, body, [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *headers])
