"""An application that is built by its first request: once, for all that wait, and again after a failure."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from appliance.web import App, DeferredApp


async def answered(scope: Any, receive: Any, send: Any) -> None:
    await send({"path": scope["path"]})


def run(build: Callable[[], App], use: Callable[[DeferredApp], Any]) -> Any:
    async def main() -> Any:
        with ThreadPoolExecutor(1) as threads:
            return await use(DeferredApp(threads, build))

    return asyncio.run(main())


async def ask(app: App, path: str) -> str:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads the body")

    await app({"type": "http", "path": path}, receive, send)
    return str(sent[0]["path"])


def test_requests_wait_for_one_build_although_the_first_one_leaves() -> None:
    builds, may_end = list[int](), Event()

    def build() -> App:
        builds.append(1)
        assert may_end.wait(30)
        return answered

    async def use(app: DeferredApp) -> list[str]:
        first, second = asyncio.create_task(ask(app, "/first")), asyncio.create_task(ask(app, "/second"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        may_end.set()
        return [await second, await ask(app, "/third")]

    assert run(build, use) == ["/second", "/third"]
    assert builds == [1]


def test_a_build_that_began_before_the_first_request_is_the_only_one() -> None:
    builds = list[int]()

    def build() -> App:
        builds.append(1)
        return answered

    async def use(app: DeferredApp) -> list[str]:
        app.build_soon()
        return [await ask(app, "/first"), await ask(app, "/second")]

    assert run(build, use) == ["/first", "/second"]
    assert builds == [1]


def test_a_failed_build_is_tried_again() -> None:
    outcomes: list[App | None] = [None, answered]

    def build() -> App:
        app = outcomes.pop(0)
        if app is None:
            raise OSError("a template cannot be read")
        return app

    async def use(app: DeferredApp) -> str:
        with pytest.raises(OSError, match="template"):
            await ask(app, "/first")
        return await ask(app, "/second")

    assert run(build, use) == "/second"
