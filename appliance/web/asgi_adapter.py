"""Answers requests at ASGI level, without Quart's request, response and tasks: for routes that are called often."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from appliance.core.errors import InvalidRequest

from .asgi import Receive, Scope, Send, wait_for_disconnect
from .requests import Request
from .responses import Response

WATCH_AFTER_SECONDS = 0.05  # most answers are complete by then, and need no task that waits for their client to leave


class Body(AsyncIterator[bytes]):
    """The body of a request as it arrives; InvalidRequest when the client leaves before its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_complete = False

    async def __anext__(self) -> bytes:
        if self.is_complete:
            raise StopAsyncIteration
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client disconnected")
        self.is_complete = not message.get("more_body", False)
        return bytes(message.get("body", b""))


class CancelOnLeave:
    """A block that is cancelled, and left without an exception, when the client of the request leaves."""

    def __init__(self, receive: Receive, body: Body) -> None:
        self._receive, self._body = receive, body
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._watch: asyncio.Task[None] | None = None
        self._has_left = False

    def __enter__(self) -> None:
        self._timer = self._loop.call_later(WATCH_AFTER_SECONDS, self._start)

    def _start(self) -> None:
        if self._body.is_complete:
            self._watch = self._loop.create_task(self._wait())
        else:  # who reads the body notices; two readers would take messages from each other
            self._timer = self._loop.call_later(WATCH_AFTER_SECONDS, self._start)

    async def _wait(self) -> None:
        await wait_for_disconnect(self._receive)
        self._has_left = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._has_left and self._task is not None and self._task.uncancel() == 0:
            return kind is not None and issubclass(kind, asyncio.CancelledError)
        return False


async def respond(handler: Callable[[Request], Awaitable[Response]], scope: Scope, receive: Receive, send: Send) -> None:
    """Send what `handler` answers to a request of any method but HEAD; it is cancelled when the client leaves."""
    body = Body(receive)
    with CancelOnLeave(receive, body):
        response = await handler(Request(scope, body))
        await response.send(send)
