"""Server-sent events (WHATWG HTML, section 9.2) over a Quart response."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from quart import Response

from .routing import Events

HEARTBEAT_SECONDS = 15.0


def stream_events(events: Events, headers: Mapping[str, str]) -> Response:
    """A `text/event-stream` response of (id, event, data); a comment every 15 s keeps proxies from closing an idle stream."""
    response = Response(_encode(events.source), 200, content_type="text/event-stream")
    response.headers.extend(headers)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    response.timeout = None
    return response


async def _encode(source: AsyncIterator[tuple[int | None, str, Any]]) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    pending: asyncio.Task[Any] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait({pending}, timeout=HEARTBEAT_SECONDS)
            if not done:
                yield b": still here\n\n"
                continue
            try:
                number, event, data = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            head = f"id: {number}\n" if number is not None else ""
            yield f"{head}event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
    finally:
        if pending is not None:
            pending.cancel()
