"""The pace of a client: how long it may take over sending its body, and over taking its answer."""

import asyncio
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from appliance.core import clock
from appliance.core.errors import InvalidRequest

from .answers import Receive, Send

DRAIN_BYTES, DRAIN_SECONDS = 1 << 20, 2.0
Aside = Callable[[], AbstractContextManager[None]]


class Pace:
    """`grace` seconds, and one more for every `rate` bytes."""

    def __init__(self, grace: float = 60.0, rate: int = 4 << 10) -> None:
        self._grace, self._rate = grace, rate

    def seconds(self, size: int) -> float:
        """How long so many bytes may take."""
        return self._grace + size / self._rate


class Incoming:
    """The request's body on its way in.  An answer waits for the rest of it, within bounds: a server that answers before
    it has read everything has to end the connection, and the client's next request on it is lost.

    Only waiting for the sender counts against the pace, not what its reader takes; who waits stands `aside`."""

    def __init__(self, receive: Receive, pace: Pace, aside: Aside, *, has_body: bool) -> None:
        self._receive = receive
        self._pace = pace
        self._aside = aside
        self.complete = not has_body
        self._ended = False  # as the server says, for a body over HTTP/2 need not say its length
        self.answered = False  # the answer has begun
        self._size = 0
        self._waited = 0.0
        self._readers = 0
        self._arrived = asyncio.Event()

    async def __call__(self) -> MutableMapping[str, Any]:
        """The next message; InvalidRequest when the body does not come, unless the answer has begun already."""
        self._readers += 1
        try:
            message = await (self._receive() if self._ended or self.answered else self._wait())
        finally:
            self._readers -= 1
        self._size += len(message.get("body", b""))
        self._ended = self._ended or not message.get("more_body", False)
        self.complete = self.complete or self._ended
        self._arrived.set()
        return message

    async def _wait(self) -> MutableMapping[str, Any]:
        began = clock.monotonic()
        with suppress(TimeoutError), self._aside():
            try:
                async with asyncio.timeout(self._pace.seconds(self._size) - self._waited):
                    return await self._receive()
            finally:
                self._waited += clock.monotonic() - began
        if self.answered:
            return await self._receive()
        raise InvalidRequest("the body came too slowly; send it again", headers={"Connection": "close"})

    async def drain(self) -> bool:
        """Whether the whole body has come, at the latest after DRAIN_BYTES more or DRAIN_SECONDS."""
        most = self._size + DRAIN_BYTES
        with suppress(TimeoutError), self._aside():
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.complete and self._size < most:
                    if self._readers:  # the application reads beside its answer
                        self._arrived.clear()
                        await self._arrived.wait()
                    else:
                        await self()
        return self.complete


class Outgoing:
    """The answer on its way out.  A client that takes none of it ends the request as if it had left: whoever answers is
    cancelled, and `stalled` says why."""

    def __init__(self, send: Send, pace: Pace, aside: Aside) -> None:
        self._send = send
        self._pace = pace
        self._aside = aside
        self.stalled = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        try:
            with self._aside():
                async with asyncio.timeout(self._pace.seconds(len(message.get("body", b"")))):
                    await self._send(message)
        except TimeoutError as error:
            self.stalled = True
            raise asyncio.CancelledError("the client takes nothing of its answer") from error
