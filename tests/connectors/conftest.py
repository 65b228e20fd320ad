"""Servers on loopback with answers defined by the test."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from appliance.connectors.testing import LoopbackServer, free_port


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


@pytest.fixture
def other_server() -> Iterator[LoopbackServer]:
    # The port must be free on both addresses: one that the system chooses may be in use on the other.
    server = LoopbackServer("127.0.0.2", free_port())
    yield server
    server.close()


@pytest.fixture
def twin_server(other_server: LoopbackServer) -> Iterator[LoopbackServer]:
    """A server on another loopback address with the same port: where a rebinding name would lead."""
    server = LoopbackServer("127.0.0.1", other_server.port)
    yield server
    server.close()


@pytest.fixture
def raw_server() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Starts a server that passes its first connection to a function; returns its URL."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(serve: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5)
                serve(connection)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(5)
    for listener in listeners:
        listener.close()
