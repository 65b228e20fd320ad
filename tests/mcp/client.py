"""The official Python client, connected to a tenant's /mcp in the requested era of the protocol."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from appliance.testing.running import Running

T = TypeVar("T")
SECONDS = 60.0
ERAS = ("2026-07-28", "legacy")
PASSWORD = "correct horse battery staple"


def talk(running: Running, key: str, work: Callable[[Client], Awaitable[T]], era: str = ERAS[0], **more: Any) -> T:
    """The result of `work` with a connected client; `more` are the client's callbacks."""

    async def connected() -> T:
        headers = {"X-API-Key": key, "Host": f"acme.localhost{running.config.port_suffix}"} | more.pop("headers", {})
        url = f"http://127.0.0.1:{running.config.server.port}/mcp"
        async with (
            httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http), mode=era, **more) as client,
        ):
            return await work(client)

    return asyncio.run(connected())


def call_tool(running: Running, key: str, tool: str, era: str = ERAS[0], /, **arguments: Any) -> dict[str, Any]:
    """The structured result of one tool, or of a refusal its coded error under `error`."""

    async def call(client: Client) -> dict[str, Any]:
        return read(await client.call_tool(tool, arguments))

    return talk(running, key, call, era)


def read(result: Any) -> dict[str, Any]:
    """The structured content of a result, or the JSON text of a refusal."""
    value: dict[str, Any] = json.loads(result.content[0].text)
    assert result.is_error or value == result.structured_content
    return value
