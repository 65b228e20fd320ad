"""Request bodies have backpressure: nothing is read from the server before the application reads it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from quart import Quart
from werkzeug.datastructures import Headers

from appliance.web.quart_bodies import BUFFERED_BYTES, PacedConnection, PacedRequest

PIECE = 1 << 16
MOST = BUFFERED_BYTES // PIECE


class Sender:
    """A server with a body of `pieces` pieces; `requested` counts those that were read."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.requested = 0

    async def receive(self) -> Any:
        self.requested += 1
        if self.requested > self.pieces:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": bytes(PIECE), "more_body": self.requested < self.pieces}


def serve(sender: Sender, read: Any) -> Any:
    """The result of `read(request)` while the connection receives from the sender."""

    async def run() -> Any:
        scope: Any = {"type": "http", "headers": [], "http_version": "1.1"}
        request = PacedRequest("POST", "http", "/", b"", Headers(), "", "1.1", scope, send_push_promise=_push_nothing)
        connection = PacedConnection(Quart(__name__), scope)
        task = asyncio.create_task(connection.handle_messages(request, sender.receive))
        try:
            return await read(request)
        finally:
            task.cancel()

    return asyncio.run(run())


def _push_nothing(path: str, headers: Headers) -> Coroutine[Any, Any, None]:
    raise AssertionError("nothing is pushed")


async def settle() -> None:
    """Let whatever can run do so."""
    for _ in range(500):
        await asyncio.sleep(0)


def test_reading_stops_when_the_buffer_is_full() -> None:
    sender = Sender(1000)

    async def read(request: PacedRequest) -> int:
        await settle()
        assert sender.requested == MOST
        first = await anext(request.body)
        assert len(first) == BUFFERED_BYTES
        await settle()
        assert sender.requested == 2 * MOST
        rest = 0
        async for piece in request.body:
            rest += len(piece)
        return len(first) + rest

    assert serve(sender, read) == 1000 * PIECE


def test_a_body_awaited_as_a_whole_is_complete() -> None:
    async def read(request: PacedRequest) -> int:
        await settle()
        return len(await request.body)

    assert serve(Sender(100), read) == 100 * PIECE
