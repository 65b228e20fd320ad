"""The splitter of `--spread` distributes connections at random, passes everything on, and repeats itself with its seed."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.store.splitter import Splitter

SECONDS = 30.0
PIECE = 1 << 20


@contextmanager
def splitting(seed: str, ports: list[int]) -> Iterator[Splitter]:
    splitter = Splitter(seed)
    splitter.start(*ports)
    try:
        yield splitter
    finally:
        splitter.stop()


@pytest.fixture
def servers() -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]


def connect(splitter: Splitter) -> socket.socket:
    return socket.create_connection(("127.0.0.1", splitter.port), SECONDS)


def ports_of(servers: list[socket.socket]) -> list[int]:
    return [server.getsockname()[1] for server in servers]


def sequence(servers: list[socket.socket], seed: str) -> list[int]:
    """The server that each of forty connections reaches."""
    for server in servers:
        server.setblocking(False)
    reached = []
    with splitting(seed, ports_of(servers)) as splitter:
        for number in range(40):
            with connect(splitter) as client:
                reached.append(_accept(servers, client))
            assert splitter.counts.total() == number + 1
    return reached


def _accept(servers: list[socket.socket], client: socket.socket) -> int:
    """The server that gets this client's connection, which it answers and closes."""
    while True:
        for number, server in enumerate(servers):
            try:
                connection, _ = server.accept()
            except BlockingIOError:
                continue
            with connection:
                connection.sendall(b"hello")
            assert client.recv(100) == b"hello"
            assert client.recv(100) == b""
            return number


def test_connections_reach_both_servers_in_the_order_of_the_seed(servers: list[socket.socket]) -> None:
    first, again, other = (sequence(servers, seed) for seed in ("one", "one", "two"))
    assert set(first) == {0, 1}
    assert first == again != other


def test_all_bytes_and_the_end_of_each_direction_are_passed_on(servers: list[socket.socket]) -> None:
    server = servers[0]
    with splitting("any", ports_of([server])) as splitter, connect(splitter) as client:
        connection, _ = server.accept()
        connection.settimeout(SECONDS)
        with connection:
            client.sendall(b"question" * 100)
            client.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b"question" * 100
            connection.sendall(b"a" * PIECE)
        assert read_all(client) == b"a" * PIECE


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_server_sees_the_address_of_the_client(servers: list[socket.socket]) -> None:
    with splitting("any", ports_of(servers[:1])) as splitter:
        there = ("127.0.0.1", splitter.port)
        with socket.create_connection(there, SECONDS, source_address=("127.0.3.1", 0)), servers[0].accept()[0] as connection:
            assert connection.getpeername()[0] == "127.0.3.1"


def test_the_connection_to_a_server_that_has_stopped_is_closed(servers: list[socket.socket]) -> None:
    port = ports_of(servers)[0]
    servers[0].close()
    with splitting("any", [port]) as splitter, connect(splitter) as client:
        assert client.recv(100) == b""
