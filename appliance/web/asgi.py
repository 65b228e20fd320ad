"""The types of ASGI, and the few exchanges of messages that every edge needs."""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, MutableMapping, Sequence
from typing import Any

from appliance.core.errors import InvalidRequest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


class TrackedSend:
    """A `send` that knows whether the response has started."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        await self._send(message)


def mount(paths: Container[str], mounted: App, app: App) -> App:
    """An application whose requests to these paths, with or without slashes at the end, are answered by another one."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/") if scope["type"] == "http" else ""
        await (mounted if path in paths else app)(scope, receive, send)

    return serve


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Send a complete response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def receive_pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body of a request as it arrives; InvalidRequest when the client disconnects before its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client disconnected")
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
