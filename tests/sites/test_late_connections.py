"""Connections that are opened in the last moment before the server stops."""

import asyncio
import socket
from collections.abc import MutableMapping
from typing import Any

from appliance.connectors.testing import free_port
from appliance.sites.front.event_loop import new_event_loop
from appliance.sites.front.hypercorn_adapter import serve
from appliance.sites.front.tls import ServerConfig
from appliance.web import Receive, Send
from tests.sites.live_server import PATIENCE, hello

TURNS = 5  # of the event loop after the stop was requested; by then the port is closed


async def unhurried(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answers when the server would long have ended if it did not wait."""
    if scope["type"] == "http":
        await asyncio.sleep(0.2)
    await hello(scope, receive, send)


def outcome(turns: int) -> str:
    """What a client gets that connects and sends its request so many turns of the event loop after the stop was requested."""
    config = ServerConfig()
    config.bind, config.graceful_timeout = [f"127.0.0.1:{free_port()}"], PATIENCE
    config.accesslog = config.errorlog = None
    address = ("127.0.0.1", int(config.bind[0].rpartition(":")[2]))
    with socket.socket() as client:
        client.settimeout(PATIENCE)

        def connect() -> None:
            if client.connect_ex(address) == 0:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        async def stop() -> None:
            def step(left: int) -> None:
                connect() if not left else asyncio.get_running_loop().call_soon(step, left - 1)

            step(turns)

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(unhurried, config, stop))
        try:
            return client.recv(4096)[9:12].decode() or "none"
        except OSError:
            return "none"  # refused, or not accepted when the port was closed


def test_whoever_is_accepted_is_answered() -> None:
    outcomes = [outcome(turns) for turns in range(TURNS + 1)]
    assert set(outcomes) == {"200", "none"}
    assert outcomes.count("200") >= 3


def test_nobody_is_accepted_once_the_port_is_closed() -> None:
    assert outcome(TURNS) == "none"
