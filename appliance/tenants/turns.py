"""Turns at work that only a few requests can do at once without slowing each other down, shared fairly among tenants."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Turns:
    """Lets `most` requests work at once; waiting tenants are served round-robin.

    A turn ends when its request releases it or finishes, at the latest after `seconds`, so it can safely be held around
    anything, including waiting for another turn.  Event loop only; the queue is bounded by request admission.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.seconds = seconds
        self._free = most
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    def turn(self, tenant_id: str) -> "Turn":
        """Hold a turn within an `async with`, which yields a function that ends it earlier."""
        return Turn(self, tenant_id)

    async def acquire(self, tenant_id: str) -> None:
        """Take a turn, or wait for one."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant_id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn was already passed to this request
                self.release()
            raise

    def release(self) -> None:
        """Pass a turn on to whoever is next, or keep it for the next one to come."""
        while self._queues:
            tenant_id = next(iter(self._queues))
            queue = self._queues.pop(tenant_id)
            next_turn = queue.popleft()
            if queue:
                self._queues[tenant_id] = queue
            if not next_turn.done():
                next_turn.set_result(None)
                return
        self._free += 1


class Turn:
    """One turn of a request."""

    __slots__ = ("_overdue", "_tenant_id", "_turns")

    def __init__(self, turns: Turns, tenant_id: str) -> None:
        self._turns, self._tenant_id = turns, tenant_id
        self._overdue: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Callable[[], None]:
        await self._turns.acquire(self._tenant_id)
        self._overdue = asyncio.get_running_loop().call_later(self._turns.seconds, self.end)
        return self.end

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the turn, unless it has ended."""
        overdue, self._overdue = self._overdue, None
        if overdue is not None:
            overdue.cancel()
            self._turns.release()
