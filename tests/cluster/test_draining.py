"""A stop behind a load balancer: /readyz says so first, requests are served for `server.drain_seconds`, then the port closes."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.test_stopping import Reader
from tests.cluster.several import Process, Several, several
from tests.store.cluster import Cluster

DRAIN_SECONDS = 120  # longer than any test; a second signal ends it


@pytest.fixture
def group(tmp_path: Path, cluster: Cluster) -> Iterator[Several]:
    with several(tmp_path, cluster.emptied(), server={"drain_seconds": DRAIN_SECONDS}) as group:
        yield group


def begin_stop(client: httpx.Client, server: Process) -> None:
    """Send SIGTERM, and return once the server says that it stops."""
    server.forked.terminate()
    while (answer := client.get("/readyz")).status_code == 200:
        pass
    assert answer.status_code == 503
    assert answer.json()["status"] == "stopping"
    assert "another" in answer.json()["message"]


def test_a_draining_server_serves_and_asks_clients_to_connect_anew(group: Several) -> None:
    server = group.start("serve", "--no-workers")
    with group.client(server) as client, group.client(server) as following:
        reader = Reader(following, "/api/v1/logs?follow=true")
        reader.start()
        assert client.get("/api/v1/processes").headers.get("connection") is None
        begin_stop(client, server)
        assert client.get("/healthz").status_code == 200
        answer = client.get("/api/v1/processes")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.put("/api/v1/processes/new", json={"id": "new", "steps": []}).status_code < 500
        assert [reader.ended] == [False]  # streams last as long as the port is open
        began = time.monotonic()
        assert group.stop(server) == 0  # the second signal
        assert time.monotonic() - began < DRAIN_SECONDS / 2
        reader.join(30)
        assert [reader.ended] == [True]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_a_connection_opened_before_the_stop_may_send_its_request(group: Several) -> None:
    server = group.start("serve", "--no-workers")
    with group.client(server) as client:
        begin_stop(client, server)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as late:
            client.get("/healthz")  # accepted after it, so it has been accepted
            server.forked.terminate()
            until_refused(server.port)
            late.sendall(f"GET /api/v1/processes HTTP/1.1\r\nHost: acme.localhost\r\nX-API-Key: {group.key}\r\n\r\n".encode())
            head = late.recv(65536)
            assert head.startswith(b"HTTP/1.1 200")
            assert b"connection: close" in head.lower()
    assert group.stop(server) == 0


def until_refused(port: int) -> None:
    """Return once nothing listens on the port any more."""
    while True:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)):
                return


def test_without_drain_seconds_a_stop_is_immediate(tmp_path: Path, cluster: Cluster) -> None:
    with several(tmp_path, cluster.emptied()) as group:
        server = group.start("serve", "--no-workers")
        with group.client(server) as client:
            assert client.get("/readyz").status_code == 200
        assert group.stop(server) == 0
