"""A server on our own edge, front and transport, with its own handlers; a key is added to every request, as suites send none."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
from mcp.server.lowlevel import Server

from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.mcp import McpEdge
from appliance.mcp.transport import Transport
from appliance.sites.front import Front, Readiness, build_server_config, serve
from appliance.testing.running import Running
from appliance.web import refuse

SECONDS = 60.0


async def nothing_else(scope: Any, receive: Any, send: Any) -> None:
    await refuse(send, NotFound("this server has /mcp and nothing else"), scope["gos.request_id"])


@contextmanager
def serving(running: Running, server: Server[Any], key: str) -> Iterator[str]:
    """The URL of this server's /mcp while the block runs."""
    services = running.services
    config = replace(running.config, server=replace(running.config.server, port=free_port()))
    box: dict[str, Any] = {}

    async def run() -> None:
        edge = McpEdge(services, lambda: Transport(server, config.limits.json_body_kb << 10))
        front = Front(edge.around(nothing_else), {}, config, lambda: Readiness("ok"))

        async def with_key(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                scope["headers"] = [*scope["headers"], (b"x-api-key", key.encode())]
                await front(scope, receive, send)

        box["loop"], box["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with edge.running():
            await serve(with_key, build_server_config(config, services.webapps.certificates), box["stop"].wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="mcp", daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{config.server.port}"
    _wait_until_it_answers(url, thread)
    yield f"{url}/mcp"
    box["loop"].call_soon_threadsafe(box["stop"].set)
    thread.join(SECONDS)


def _wait_until_it_answers(url: str, thread: threading.Thread) -> None:
    until = clock.monotonic() + SECONDS
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        while True:
            try:
                client.get(f"{url}/healthz").raise_for_status()
                return
            except httpx.TransportError:
                assert clock.monotonic() < until, "the server does not answer"
            thread.join(0.02)
            assert thread.is_alive(), "this server has ended"
