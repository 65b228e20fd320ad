"""What a wire promises to every protocol over it: limits, and the deadline even for a server that is never quite silent."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from appliance.connectors.contract import ConfigError, Peer, SystemFailure, TransientError, Wire
from appliance.connectors.testing import open_context, write_certificate

Serve = Callable[[socket.socket, threading.Event], None]


@contextmanager
def serving(serve: Serve) -> Iterator[int]:
    """The port of a server that serves one connection; the event is set at the end."""
    ending = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    serve(connection, ending)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ending.set()
            thread.join()


def say(content: bytes) -> Serve:
    def serve(connection: socket.socket, ending: threading.Event) -> None:
        connection.sendall(content)
        ending.wait(30)

    return serve


def connect(port: int, seconds: float = 10, tls: str = "off", ca: str | None = None, max_bytes: int | None = None) -> Wire:
    with open_context(seconds=seconds) as ctx:
        return Wire(Peer("TEST", "127.0.0.1", port, tls, ca), ctx, max_bytes=max_bytes, advice="; ask for less")


def test_lines_and_sizes_are_read_and_the_rest_is_kept_for_later() -> None:
    with serving(say(b"one\r\ntwo\nthree")) as port:
        wire = connect(port)
        assert (wire.read_line(3 + 1), wire.read_line(10), wire.read_exactly(2), wire.receive()) == (b"one", b"two", b"th", b"ree")
        wire.close()


@pytest.mark.parametrize("content", [b"x" * 100, b"x" * 100 + b"\n", b"x" * 200_000])
def test_a_line_beyond_its_limit_is_refused(content: bytes) -> None:
    with serving(say(content)) as port:
        wire = connect(port)
        with pytest.raises(SystemFailure, match="violated the TEST protocol"):
            wire.read_line(50)
        wire.close()


def test_more_bytes_than_the_limit_are_refused() -> None:
    with serving(say(b"x" * 3_000_000)) as port:
        wire = connect(port, max_bytes=2 * 2**20)
        with pytest.raises(SystemFailure, match="more than 2 MB; ask for less"):
            wire.read_exactly(3_000_000)
        wire.close()


def test_the_outcome_of_a_lost_connection_is_what_the_protocol_says() -> None:
    with serving(lambda connection, _: connection.close()) as port:
        wire = connect(port)
        wire.outcome_when_lost = "unknown"
        with pytest.raises(TransientError) as caught:
            wire.read_line(10)
        assert caught.value.outcome == "unknown"
        wire.close()


def test_a_server_that_reads_slowly_over_tls_does_not_outlast_the_deadline(tmp_path: Path) -> None:
    ca = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")

    def read_slowly(connection: socket.socket, ending: threading.Event) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            while not ending.wait(0.05) and encrypted.recv(16_384):
                pass

    with serving(read_slowly) as port:
        wire = connect(port, seconds=3, tls="tls", ca=ca)
        begin = time.monotonic()
        with pytest.raises(TransientError, match="in time"):
            wire.send(b"x" * 64_000_000)
        assert time.monotonic() - begin < 20
        wire.close()


def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")

    def serve(connection: socket.socket, _: threading.Event) -> None:
        context.wrap_socket(connection, server_side=True).close()

    with serving(serve) as port, pytest.raises(ConfigError, match="not trusted"):
        connect(port, tls="tls")
