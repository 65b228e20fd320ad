"""Serializes large request bodies: parsing and validating one holds the interpreter, which blocks all other requests."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

LARGE_BYTES = 64 << 10
# Parsing and validating the largest body takes less; work that takes longer stops blocking the queue after that.
MAX_TURN_SECONDS = 3.0


def release_nothing() -> None:
    """The release function of a request that holds no turn."""


class LargeBodies:
    """Processes one large body at a time; waiting tenants are served round-robin.

    A turn ends when its request releases it or finishes, at the latest after `MAX_TURN_SECONDS`, so it can safely be held around
    anything, including waiting for another large body.  Event loop only; the queue is bounded by request admission.
    """

    def __init__(self) -> None:
        self._is_busy = False
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    def turn(self, tenant_id: str, size: int) -> AbstractAsyncContextManager[Callable[[], None]]:
        """Hold a turn while working on a received body of this size; small ones do not wait.  Yields a function to end the turn."""
        return nullcontext(release_nothing) if size < LARGE_BYTES else self._hold(tenant_id)

    @asynccontextmanager
    async def _hold(self, tenant_id: str) -> AsyncIterator[Callable[[], None]]:
        await self._acquire(tenant_id)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._release()

        overdue = asyncio.get_running_loop().call_later(MAX_TURN_SECONDS, end)
        try:
            yield end
        finally:
            overdue.cancel()
            end()

    async def _acquire(self, tenant_id: str) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant_id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn was already passed to this request
                self._release()
            raise

    def _release(self) -> None:
        while self._queues:
            tenant_id = next(iter(self._queues))
            queue = self._queues.pop(tenant_id)
            next_turn = queue.popleft()
            if queue:
                self._queues[tenant_id] = queue
            if not next_turn.done():
                next_turn.set_result(None)
                return
        self._is_busy = False
