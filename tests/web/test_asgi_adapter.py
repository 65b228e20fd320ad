"""A request answered at ASGI level: its body, its answer, and what happens when the client leaves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.core.errors import InvalidRequest
from appliance.web import Message, Request, Response, respond

SCOPE = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
WHOLE = {"type": "http.request", "body": b"one", "more_body": False}
LEFT = {"type": "http.disconnect"}


class Client:
    """Sends these messages, each when it is asked for and `pause` is over, and then stays."""

    def __init__(self, *messages: Message, pause: float = 0.0) -> None:
        self._messages = list(messages)
        self._pause = pause
        self.received: list[Message] = []

    async def receive(self) -> Message:
        await asyncio.sleep(self._pause)
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def send(self, message: Message) -> None:
        self.received.append(dict(message))


async def wait_for_cancellation() -> None:
    """Wait until the request is cancelled; TimeoutError when nobody does."""
    await asyncio.wait_for(asyncio.Event().wait(), 5)


def serve(client: Client, handler: Any) -> None:
    asyncio.run(asyncio.wait_for(respond(handler, dict(SCOPE), client.receive, client.send), 10))


def test_a_body_in_pieces_is_answered_in_two_messages() -> None:
    async def echo(request: Request) -> Response:
        return Response(201, b"".join([piece async for piece in request.pieces]), {"X-Name": "v"})

    client = Client({"type": "http.request", "body": b"on", "more_body": True}, {"type": "http.request", "body": b"e"})
    serve(client, echo)
    start, body = client.received
    assert (start["status"], dict(start["headers"])) == (201, {b"x-name": b"v", b"content-length": b"3"})
    assert (body["body"], body.get("more_body", False)) == (b"one", False)


def test_a_client_that_leaves_while_it_waits_cancels_the_handler() -> None:
    ends: list[str] = []

    async def wait(request: Request) -> Response:
        assert [piece async for piece in request.pieces] == [b"one"]
        try:
            await wait_for_cancellation()
        finally:
            ends.append("cancelled")
        raise AssertionError

    client = Client(WHOLE, LEFT)
    serve(client, wait)
    assert (ends, client.received) == (["cancelled"], [])


def test_a_client_that_leaves_a_stream_ends_it() -> None:
    ends: list[str] = []

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await wait_for_cancellation()
        finally:
            ends.append("closed")

    async def stream(request: Request) -> Response:
        assert [piece async for piece in request.pieces] == [b"one"]
        return Response(200, pieces=pieces())

    client = Client(WHOLE, LEFT)
    serve(client, stream)
    assert ends == ["closed"]
    assert [each.get("body") for each in client.received] == [None, b"first"]


def test_a_client_that_leaves_during_its_body_is_noticed_by_the_reader() -> None:
    async def read(request: Request) -> Response:
        with pytest.raises(InvalidRequest, match="disconnected"):
            [piece async for piece in request.pieces]
        return Response(400)

    client = Client({"type": "http.request", "body": b"on", "more_body": True}, LEFT, pause=0.2)
    serve(client, read)
    assert client.received[0]["status"] == 400


def test_a_slow_body_is_read_by_nobody_else() -> None:
    async def read(request: Request) -> Response:
        return Response(200, b"".join([piece async for piece in request.pieces]))

    parts = [{"type": "http.request", "body": each, "more_body": True} for each in (b"o", b"n", b"e")]
    client = Client(*parts, {"type": "http.request", "body": b""}, pause=0.1)
    serve(client, read)
    assert client.received[1]["body"] == b"one"


def test_the_end_of_the_server_cancels_the_request_visibly() -> None:
    async def wait(request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def stop() -> None:
        client = Client(WHOLE)
        task = asyncio.ensure_future(respond(wait, dict(SCOPE), client.receive, client.send))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
