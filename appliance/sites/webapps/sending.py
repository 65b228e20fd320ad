"""Sends planned responses: the headers, then a blob piece by piece until the client disconnects."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from appliance.blobs import Blobs, Pieces
from appliance.core.scope import TenantScope
from appliance.sites.front.representation import ResponsePlan
from appliance.web import Exchange, Headers, in_thread, wait_for_disconnect

T = TypeVar("T")
CACHED_FILE_BYTES, CACHE_BYTES = 1 << 18, 64 << 20


class Sender:
    """Sends response plans. Small contents are cached in memory, in one cache for all content hosts."""

    def __init__(self, blobs: Blobs, threads: Executor) -> None:
        self._blobs = blobs
        self._threads = threads
        self._cache: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._cache_bytes = 0

    async def in_thread(self, fn: Callable[[], T]) -> T:
        """Run `fn` on a thread, and return its result."""
        return await in_thread(self._threads, fn)

    async def send(self, tenant: TenantScope, plan: ResponsePlan, exchange: Exchange, extra_headers: Headers = ()) -> int:
        """Send the response with `more` headers; returns how many bytes were sent. BlobDamaged before anything is sent."""
        method, send = exchange.scope["method"], exchange.send
        start = {"type": "http.response.start", "status": plan.status, "headers": [*plan.headers, *extra_headers]}
        if method == "HEAD" or plan.start == plan.end:
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return 0
        if plan.size <= CACHED_FILE_BYTES:
            whole = await self._read_cached(tenant, plan.sha256)
            await send(start)
            await send({"type": "http.response.body", "body": whole[plan.start : plan.end]})
            return plan.end - plan.start
        pieces = await self.in_thread(partial(self._blobs.read, tenant, plan.sha256, plan.start, plan.end))
        await send(start)
        sent = 0
        disconnected = asyncio.ensure_future(wait_for_disconnect(exchange.receive))
        try:
            while sent < plan.end - plan.start and not disconnected.done() and (piece := await self._next(pieces)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                sent += len(piece)
        finally:
            disconnected.cancel()
            with suppress(asyncio.CancelledError):
                await disconnected
        await send({"type": "http.response.body", "body": b""})
        return sent

    async def _next(self, pieces: Pieces) -> bytes:
        """The next piece, without a thread if it is in memory; empty at the end."""
        piece = pieces.at_hand()
        if piece is None:
            return await self.in_thread(partial(next, pieces, b""))
        await asyncio.sleep(0)  # let other tasks run, and notice a disconnect
        return piece

    async def _read_cached(self, tenant: TenantScope, sha256: str) -> bytes:
        """A small content, from the cache if possible."""
        key = (tenant.tenant_id, sha256)
        content = self._cache.get(key)
        if content is not None:
            self._cache.move_to_end(key)
            return content
        content = await self.in_thread(partial(self._blobs.read_whole, tenant, sha256, CACHED_FILE_BYTES))
        if key not in self._cache:
            self._cache[key] = content
            self._cache_bytes += len(content)
            while self._cache_bytes > CACHE_BYTES:
                self._cache_bytes -= len(self._cache.popitem(last=False)[1])
        return content

