"""An application that is built by its first request."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from .asgi import App, Receive, Scope, Send
from .threads import in_thread


class DeferredApp:
    """Passes requests to the application that `build` returns, which a thread calls for the first of them; the others wait for it.

    If it fails, its error is raised to those that wait, and the next request builds again.
    """

    def __init__(self, threads: Executor, build: Callable[[], App]) -> None:
        self._threads, self._build = threads, build
        self._app: App | None = None
        self._building: asyncio.Task[App] | None = None

    def build_soon(self) -> None:
        """Build it beside whatever else the event loop does, so that the first request need not wait for it."""
        self._building = asyncio.create_task(in_thread(self._threads, self._build))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self._get()
        await app(scope, receive, send)

    async def _get(self) -> App:
        if self._building is None:
            self._building = asyncio.create_task(in_thread(self._threads, self._build))
        building = self._building
        try:
            self._app = await asyncio.shield(building)  # The client that asked first may leave; the others still wait.
        finally:
            if building.done() and self._building is building:
                self._building = None
        return self._app
