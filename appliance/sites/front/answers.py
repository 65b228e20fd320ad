"""Whole answers at ASGI level, before any edge has seen the request."""

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
# Key of the ASGI scope: a `Visitor` whom the appliance itself sends, by which no gate asks who they are.  No request from
# outside can have it.
VISITOR = "gos.visitor"
# Key of the ASGI scope: what the log of requests is told by those who answer, `route` and `execution_id`.
NOTED = "gos.noted"


@dataclass(frozen=True)
class Exchange:
    """One request at ASGI level and the way to answer it."""

    scope: Scope
    receive: Receive
    send: Send


class Answering:
    """A way to answer that knows whether the answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.begun = True
        await self._send(message)


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """A whole response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def error_document(error: ApplianceError, request_id: str) -> bytes:
    """The body that answers a coded error, in the API's shape."""
    shown = {"code": error.code, "message": error.message, "status": error.status, "request_id": request_id, "details": []}
    return json.dumps({"success": False, "error": shown}).encode()


async def refuse(send: Send, error: ApplianceError, request_id: str) -> None:
    """A coded error, before any edge has seen the request."""
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    body = error_document(error, request_id)
    await answer(send, error.status, body, [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *headers])
