"""Request bodies with backpressure: Quart buffers whatever arrives, so a slow disk would fill the memory."""

import asyncio
from collections.abc import Generator
from typing import Any

from hypercorn.typing import ASGIReceiveCallable
from quart.asgi import ASGIHTTPConnection
from quart.wrappers import Request
from quart.wrappers.request import Body

BUFFERED_BYTES = 1 << 20


class PacedBody(Body):
    """A body that buffers at most a megabyte while it is iterated; awaited as a whole, it is buffered completely."""

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(expected_content_length, max_content_length)
        self._has_room = asyncio.Event()
        self._is_awaited = False

    async def __anext__(self) -> bytes:
        data = await super().__anext__()
        self._has_room.set()
        return data

    def __await__(self) -> Generator[Any, None, Any]:
        self._is_awaited = True
        self._has_room.set()
        return super().__await__()

    async def wait_for_room(self) -> None:
        """Wait until the buffer has room for more."""
        while len(self._data) >= BUFFERED_BYTES and not self._is_awaited:
            self._has_room.clear()
            await self._has_room.wait()


class PacedRequest(Request):
    body_class = PacedBody


class PacedConnection(ASGIHTTPConnection):
    """Reads more of a body only when there is room for it, so that the server slows down the sender."""

    async def handle_messages(self, request: Request, receive: ASGIReceiveCallable) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            if message["type"] == "http.request":
                request.body.append(message.get("body", b""))
                if not message.get("more_body", False):
                    request.body.set_complete()
                elif isinstance(request.body, PacedBody):
                    await request.body.wait_for_room()
