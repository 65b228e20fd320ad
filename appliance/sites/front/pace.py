"""Limits how slowly a client may send its body and read its response."""

import asyncio
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from appliance.core import clock
from appliance.core.errors import InvalidRequest
from appliance.web import Receive, Send, Started

DRAIN_BYTES, DRAIN_SECONDS = 1 << 20, 2.0
PauseWork = Callable[[], AbstractContextManager[None]]


class Pace:
    """The time allowed for a transfer: `grace` seconds, plus one second per `rate` bytes."""

    def __init__(self, grace: float = 60.0, rate: int = 4 << 10) -> None:
        self._grace, self._rate = grace, rate

    def seconds(self, size: int) -> float:
        """How many seconds the transfer of `size` bytes may take."""
        return self._grace + size / self._rate


class Incoming:
    """The body of a request. A response waits for the rest of the body, within limits: a server that responds before reading
    everything must close the connection, which loses the client's next request on it.

    Only time spent waiting for the sender counts, not the time of the reader. While waiting, the request is `aside`: it does
    not count as being worked on. Once the stream has `ended`, the client seems to have left.
    """

    def __init__(self, receive: Receive, pace: Pace, aside: PauseWork, ended: asyncio.Event, *, has_body: bool) -> None:
        self._receive = receive
        self._stream_ended = ended
        self._pace = pace
        self._aside = aside
        self.complete = not has_body
        self._ended = False  # from the server's messages; an HTTP/2 body need not announce its length
        self.answered = False  # the response has started
        self._size = 0
        self._waited = 0.0
        self._readers = 0
        self._arrived = asyncio.Event()

    async def __call__(self) -> MutableMapping[str, Any]:
        """The next message; InvalidRequest when the body arrives too slowly, unless the response has already started."""
        self._readers += 1
        try:
            message = await (self._wait_for_end() if self._ended or self.answered else self._wait())
        finally:
            self._readers -= 1
        self._size += len(message.get("body", b""))
        self._ended = self._ended or not message.get("more_body", False)
        self.complete = self.complete or self._ended
        self._arrived.set()
        return message

    async def _wait(self) -> MutableMapping[str, Any]:
        receiving = Started(self._receive())
        if receiving.is_over:
            return receiving.result
        started_at = clock.monotonic()
        with suppress(TimeoutError), self._aside():
            try:
                async with asyncio.timeout(self._pace.seconds(self._size) - self._waited):
                    return await receiving
            finally:
                self._waited += clock.monotonic() - started_at
        if self.answered:
            return await self._wait_for_end()
        raise InvalidRequest("the body arrived too slowly; send it again", headers={"Connection": "close"})

    async def _wait_for_end(self) -> MutableMapping[str, Any]:
        """The next message, or a disconnect when the stream is to end."""
        receiving = asyncio.ensure_future(self._receive())
        ending = asyncio.ensure_future(self._stream_ended.wait())
        try:
            await asyncio.wait({receiving, ending}, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else {"type": "http.disconnect"}
        finally:
            receiving.cancel()
            ending.cancel()

    async def drain(self) -> bool:
        """Read the rest of the body, at most DRAIN_BYTES or DRAIN_SECONDS; returns whether it is complete."""
        limit = self._size + DRAIN_BYTES
        with suppress(TimeoutError), self._aside():
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.complete and self._size < limit:
                    if self._readers:  # the application reads while it responds
                        self._arrived.clear()
                        await self._arrived.wait()
                    else:
                        await self()
        return self.complete


class Outgoing:
    """The response to a client. If the client does not read it, the request is cancelled as if the client had left, and
    `stalled` is set."""

    def __init__(self, send: Send, pace: Pace, aside: PauseWork) -> None:
        self._send = send
        self._pace = pace
        self._aside = aside
        self.stalled = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        sending = Started(self._send(message))
        if sending.is_over:
            return
        try:
            with self._aside():
                async with asyncio.timeout(self._pace.seconds(len(message.get("body", b"")))):
                    await sending
        except TimeoutError as error:
            self.stalled = True
            raise asyncio.CancelledError("the client does not read the response") from error
