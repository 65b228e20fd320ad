"""The types of ASGI, and the few exchanges of messages that every edge needs."""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Generator, Iterable, MutableMapping, Sequence
from typing import Any, Generic, TypeVar

from appliance.core.errors import InvalidRequest

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


class Started(Generic[T]):
    """An awaitable, run until it first has to wait; await this for the rest, unless it `is_over`.

    Most messages are sent and received without waiting, and need no time limit, which would cost as much as they do.
    """

    def __init__(self, work: Awaitable[T]) -> None:
        self._work = work.__await__()
        self.is_over = False
        self.result: T
        self._waits_for = self._step(None)

    def _step(self, error: BaseException | None) -> Any:
        try:
            return self._work.send(None) if error is None else self._work.throw(error)
        except StopIteration as end:
            self.is_over, self.result = True, end.value
            return None

    def __await__(self) -> Generator[Any, Any, T]:
        while not self.is_over:
            error = None
            try:
                yield self._waits_for
            except BaseException as thrown:  # noqa: BLE001  a cancellation or a time limit: the work's to handle
                error = thrown
            self._waits_for = self._step(error)
        return self.result


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
