"""Server-sent events (WHATWG HTML, section 9.2)."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from appliance.web import HEARTBEAT, HEARTBEAT_SECONDS, Response, encode_event

from .routing import Events


def stream_events(events: Events, headers: Mapping[str, str]) -> Response:
    """A `text/event-stream` response of (id, event, data); a comment every 15 s keeps proxies from closing an idle stream."""
    own = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(200, headers={**headers, **own}, pieces=_encode(events.source))


async def _encode(source: AsyncIterator[tuple[int | None, str, Any]]) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    pending: asyncio.Task[Any] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait({pending}, timeout=HEARTBEAT_SECONDS)
            if not done:
                yield HEARTBEAT
                continue
            try:
                number, event, data = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield encode_event(json.dumps(data, ensure_ascii=False), event, number)
    finally:
        if pending is not None:
            pending.cancel()
