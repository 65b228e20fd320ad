"""What a plan says, sent: headers, then the bytes of a blob a piece at a time, for as long as somebody takes them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from appliance.blobs import Blobs, Pieces
from appliance.core.scope import TenantScope
from appliance.sites.front.answers import Exchange, Headers, Receive
from appliance.sites.front.representation import Plan

T = TypeVar("T")
HELD_BYTES, HELD_TOGETHER = 1 << 18, 64 << 20


class Sender:
    """Sends plans; small contents that were asked for lately are kept in memory, all hosts of content together."""

    def __init__(self, blobs: Blobs, threads: Executor) -> None:
        self._blobs = blobs
        self._threads = threads
        self._held: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._held_bytes = 0

    async def in_thread(self, fn: Callable[[], T]) -> T:
        """What `fn` answers, which may take its time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, fn)

    async def send(self, tenant: TenantScope, plan: Plan, exchange: Exchange, more: Headers = ()) -> int:
        """Send the answer with `more` headers; answers how many bytes were taken.  BlobDamaged before anything is sent."""
        method, send = exchange.scope["method"], exchange.send
        start = {"type": "http.response.start", "status": plan.status, "headers": [*plan.headers, *more]}
        if method == "HEAD" or plan.start == plan.end:
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return 0
        if plan.size <= HELD_BYTES:
            whole = await self._hold(tenant, plan.sha256)
            await send(start)
            await send({"type": "http.response.body", "body": whole[plan.start : plan.end]})
            return plan.end - plan.start
        pieces = await self.in_thread(partial(self._blobs.read, tenant, plan.sha256, plan.start, plan.end))
        await send(start)
        sent = 0
        leaving = asyncio.ensure_future(gone(exchange.receive))
        try:
            while sent < plan.end - plan.start and not leaving.done() and (piece := await self._next(pieces)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                sent += len(piece)
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
        await send({"type": "http.response.body", "body": b""})
        return sent

    async def _next(self, pieces: Pieces) -> bytes:
        """The next piece, without a thread when it is in memory; empty at the end."""
        piece = pieces.at_hand()
        if piece is None:
            return await self.in_thread(partial(next, pieces, b""))
        await asyncio.sleep(0)  # the others' turn, and whether somebody has left is seen
        return piece

    async def _hold(self, tenant: TenantScope, sha256: str) -> bytes:
        """A small content, from memory when it has been asked for lately."""
        key = (tenant.tenant_id, sha256)
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            return found
        found = await self.in_thread(partial(self._blobs.read_whole, tenant, sha256, HELD_BYTES))
        if key not in self._held:
            self._held[key] = found
            self._held_bytes += len(found)
            while self._held_bytes > HELD_TOGETHER:
                self._held_bytes -= len(self._held.popitem(last=False)[1])
        return found


async def gone(receive: Receive) -> None:
    """Return once whoever asked has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
