"""Large bodies take turns: to read one and to judge it holds the interpreter, which everybody else's requests wait for."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LARGE_BYTES = 64 << 10
# Reading and judging the largest takes less.  Whoever does something else for longer keeps nobody waiting after that.
HELD_SECONDS = 3.0


def no_turn() -> None:
    """Of a request that has none to end."""


class LargeBodies:
    """One is begun at a time, and the tenants that wait are served in turn.

    A turn ends when its request says so or is over, but after `HELD_SECONDS` at the latest: so it may be held around anything,
    also around what waits for another large body.  Used on the event loop only; as many wait as requests are admitted.
    """

    def __init__(self) -> None:
        self._taken = False
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, tenant_id: str, size: int) -> AsyncIterator[Callable[[], None]]:
        """Around the work on a body of so many bytes, once it is here; a small one does not wait.  Yields what ends the turn."""
        if size < LARGE_BYTES:
            yield no_turn
            return
        await self._take(tenant_id)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._pass_on()

        overdue = asyncio.get_running_loop().call_later(HELD_SECONDS, end)
        try:
            yield end
        finally:
            overdue.cancel()
            end()

    async def _take(self, tenant_id: str) -> None:
        if not self._taken:
            self._taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._lines.setdefault(tenant_id, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was this one's turn already
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._lines:
            tenant_id = next(iter(self._lines))
            line = self._lines.pop(tenant_id)
            following = line.popleft()
            if line:
                self._lines[tenant_id] = line
            if not following.done():
                following.set_result(None)
                return
        self._taken = False
