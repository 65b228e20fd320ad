"""Responses, complete or in pieces, and how they are sent."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from .asgi import Send, answer
from .threads import in_thread

HEARTBEAT_SECONDS = 15.0  # after so long, proxies close a silent connection
HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True)
class Response:
    """A response: its body as a whole, or in `pieces` that are sent at the pace of the client.

    Header names may be in any case; `cookies` are the values of Set-Cookie headers.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Sequence[str] = ()
    pieces: AsyncIterator[bytes] | None = None

    @property
    def content_length(self) -> int:
        """The size of the body in bytes; 0 for a stream whose length is not known."""
        return len(self.body) if self.pieces is None else int(self.headers.get("Content-Length", 0))

    def encoded_headers(self) -> list[tuple[bytes, bytes]]:
        pairs = [*self.headers.items(), *(("set-cookie", cookie) for cookie in self.cookies)]
        return [(name.lower().encode("ascii"), value.encode("latin1", "replace")) for name, value in pairs]

    async def send(self, send: Send) -> None:
        """Send the response to a method other than HEAD."""
        if self.pieces is None:
            await answer(send, self.status, self.body, self.encoded_headers())
            return
        await send({"type": "http.response.start", "status": self.status, "headers": self.encoded_headers()})
        async for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def read_pieces(source: Iterator[bytes], threads: Executor) -> AsyncIterator[bytes]:
    """The pieces of a blocking source, each read in a thread when the client is ready for it."""
    while piece := await in_thread(threads, next, source, b""):
        yield piece


def encode_event(data: str, event: str = "", event_id: str | int | None = None) -> bytes:
    """A server-sent event (WHATWG HTML, section 9.2) with one line of data."""
    head = f"id: {event_id}\n" if event_id is not None else ""
    head += f"event: {event}\n" if event else ""
    return f"{head}data: {data}\n\n".encode("utf8", "replace")
