"""TLS of outgoing connections: a pinned address must still present the requested host name."""

import contextlib
import datetime as dt
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from appliance.connectors.contract import (
    HttpAnswer,
    HttpRequest,
    TransientError,
)
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.network.addresses import parse_allow
from appliance.core.errors import ConfigInvalid

LOOPBACK = Egress.of(["127.0.0.0/8"])
Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def client() -> Iterator[EgressClient]:
    client = EgressClient(LOOPBACK)
    yield client
    client.close()


def send(client: EgressClient, method: str, url: str, *, seconds: float = 5, **more: Any) -> HttpAnswer:
    return client.send(HttpRequest(method, url, **more), time.monotonic() + seconds)


def sending(egress: Egress, method: str, url: str, **more: Any) -> HttpAnswer:
    client = EgressClient(egress)
    try:
        return send(client, method, url, **more)
    finally:
        client.close()


def test_a_plain_server_does_not_pass_for_https(client: EgressClient, server: Any) -> None:
    with pytest.raises(TransientError) as caught:
        send(client, "POST", f"https://127.0.0.1:{server.port}/", content=b"x")
    assert caught.value.outcome == "not_done"


def serve_tls(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Answer one request over TLS; a client that disconnects ends it."""
    with contextlib.suppress(ssl.SSLError, OSError), context.wrap_socket(connection, server_side=True) as secured:
        secured.recv(65536)
        secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_an_untrusted_certificate_is_refused_before_anything_is_sent(
    client: EgressClient, raw_server: Serve, certificate: Path
) -> None:
    port = raw_server(partial(serve_tls, server_context(certificate))).rpartition(":")[2]
    with pytest.raises(TransientError, match="certificate verify failed") as caught:
        send(client, "POST", f"https://127.0.0.1:{port}/", content=b"secret")
    assert caught.value.outcome == "not_done"


@pytest.mark.parametrize(("host", "accepted"), [("erp.internal", True), ("evil.internal", False)])
def test_a_pinned_connection_still_verifies_the_host_name(raw_server: Serve, certificate: Path, host: str, accepted: bool) -> None:
    port = raw_server(partial(serve_tls, server_context(certificate))).rpartition(":")[2]
    rules = parse_allow(["127.0.0.0/8"])
    egress = Egress(rules, resolver=lambda _host, _port: ["127.0.0.1"], ca_file=str(certificate))
    if accepted:
        assert sending(egress, "GET", f"https://{host}:{port}/").content == b"ok"
    else:
        with pytest.raises(TransientError, match="Hostname mismatch"):
            sending(egress, "GET", f"https://{host}:{port}/")


def test_a_ca_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing\n")
    for name in ("missing.pem", "empty.pem"):
        with pytest.raises(ConfigInvalid, match=r"egress\.ca_file"):
            Egress.of([], str(tmp_path / name))


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Key and certificate of `erp.internal`, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "erp.internal")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("erp.internal")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "server.pem"
    file.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return file
