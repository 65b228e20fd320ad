"""Entries of audit trails reach a syslog server, each at least once and in order, also one that was away."""

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.testing import write_certificate
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.config.sections import Audit
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.monitor.forwarding import BATCH, PAUSE_MS, AuditForwarding, SyslogServer, build_message, record_of
from appliance.monitor.signed_trails import AuditKeys, FileStatus, public_keys_file, read_public_keys, verify_file
from tests.monitor.test_audit import act
from tests.processes.world import Wall

CHECKPOINT_MS, LEASE_MS = 900_000, 60_000
KEYS = AuditKeys(Sealer(b"m" * 32))
MESSAGE = re.compile(rb"<110>1 (\S+Z) gos\.example gos - audit \[gos@32473 (.*?[^\\]\")\] (\{.*\})", re.DOTALL)


class Receiver:
    """A syslog server on a loopback port, over TCP or TLS; `received` are the messages of all connections."""

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self._listening = socket.create_server(("127.0.0.1", port))
        self._context = context
        self.port = self._listening.getsockname()[1]
        self.received: list[bytes] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # closed
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        if self._context is not None:
            try:
                connection = self._context.wrap_socket(connection, server_side=True)
            except ssl.SSLError:
                return  # the client refused the certificate
        with connection, connection.makefile("rb") as stream:
            while length := b"".join(iter(lambda: stream.read(1).strip(), b"")):
                message = stream.read(int(length))
                with self._changed:
                    self.received.append(message)
                    self._changed.notify_all()

    def wait_for(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, 20), len(self.received)
            return list(self.received)

    def drop(self) -> None:
        """Close all connections, as a server that starts again."""
        for connection in self._open:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # closing alone would not end `accept`
        self._listening.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as running:
        yield running


def forwarding_to(address: str, ca_file: str = "") -> AuditForwarding:
    """Forwarding that sends a checkpoint after the entries of a trail, and the next one a quarter of an hour later."""
    return AuditForwarding(SyslogServer(Audit(address, ca_file=ca_file), "gos.example"), KEYS, CHECKPOINT_MS)


def lines(messages: list[bytes]) -> list[str]:
    """The exported lines that the messages contain."""
    matches = [MESSAGE.fullmatch(message) for message in messages]
    assert all(matches), messages
    return [match[3].decode() for match in matches if match]


def test_entries_arrive_in_order_and_can_be_verified(acme: TenantScope, other: TenantScope, receiver: Receiver) -> None:
    act(acme, BATCH + 3)
    act(other, 2)
    forwarding = forwarding_to(f"tcp://127.0.0.1:{receiver.port}")
    with closing(forwarding):
        assert forwarding.next_due() is not None
        forwarding.forward()
        receiver.wait_for(BATCH + 5 + 2)
        assert forwarding.next_due() is None
        act(acme, 1)
        forwarding.forward()
        received = lines(receiver.wait_for(BATCH + 6 + 2))
    own = [line for line in received if '"tenant_id": "acme"' in line]
    assert audit.verify_exported(own) == audit.verify(acme)
    assert len(received) == BATCH + 6 + 2


def test_over_tls_the_certificate_is_checked(acme: TenantScope, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    act(acme, 2)
    with closing(Receiver(context=context)) as receiver:
        address = f"tls://127.0.0.1:{receiver.port}"
        with closing(forwarding_to(address)) as forwarding:
            forwarding.forward()
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        with closing(forwarding_to(address, str(tmp_path / "certificate"))) as forwarding:
            forwarding.forward()
            assert len(lines(receiver.wait_for(3))) == 3, "two entries and a checkpoint"
            act(acme, 1)
            forwarding.forward()
            assert len(lines(receiver.wait_for(4))) == 4
        assert receiver.connections == 2  # the refused one, and one for all entries


def test_entries_wait_for_a_server_that_is_away(
    acme: TenantScope, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Receiver()) as closed:
        pass
    act(acme, 3)
    with closing(forwarding_to(f"tcp://127.0.0.1:{closed.port}")) as forwarding:
        forwarding.forward()
        due = forwarding.next_due()
        now = clock.now_ms()
        assert due is not None
        assert now < due <= now + PAUSE_MS
        with closing(Receiver(closed.port)) as receiver:
            forwarding.forward()  # too early
            monkeypatch.setattr(clock, "now_ms", lambda: now + PAUSE_MS + 1)
            forwarding.forward()
            assert audit.verify_exported(lines(receiver.wait_for(4))).entries == 3
    assert caplog.text.count("cannot be reached") == caplog.text.count("entries wait") == 1


def test_a_connection_that_the_server_has_closed_is_opened_again(acme: TenantScope, receiver: Receiver) -> None:
    act(acme, 1)
    with closing(forwarding_to(f"tcp://127.0.0.1:{receiver.port}")) as forwarding:
        forwarding.forward()
        receiver.wait_for(2)
        receiver.drop()
        act(acme, 2)
        forwarding.forward()
        assert audit.verify_exported(lines(receiver.wait_for(4))).entries == 3


def test_another_process_continues_and_does_not_send_beside(acme: TenantScope, receiver: Receiver) -> None:
    act(acme, 3)
    first, second = (forwarding_to(f"tcp://127.0.0.1:{receiver.port}") for _ in range(2))
    with closing(first), closing(second):
        first.forward()
        receiver.wait_for(4)
        act(acme, 2)
        db.write(lambda: db.execute("UPDATE audit_forward SET lease_until = ?", (clock.now_ms() + 60_000,)))  # a third one sends
        second.forward()
        assert len(receiver.received) == 4
        db.write(lambda: db.execute("UPDATE audit_forward SET lease_until = 0"))  # it has died
        second.forward()
        assert audit.verify_exported(lines(receiver.wait_for(6))).entries == 5


def die_sending() -> None:
    """A third process claims the trail, and dies."""
    until = clock.now_ms() + LEASE_MS
    db.write(lambda: db.execute("UPDATE audit_forward SET fence = fence + 1, lease_until = ?", (until,)))


def test_the_lease_of_a_dead_process_ends_although_the_clock_was_set_back(
    acme: TenantScope, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hours back, neither entries nor a checkpoint wait for three hours; a short way back, they wait for the lease."""
    wall = Wall(monkeypatch)
    act(acme, 3)
    address = f"tcp://127.0.0.1:{receiver.port}"
    with closing(forwarding_to(address)) as first, closing(forwarding_to(address)) as second:
        first.forward()
        receiver.wait_for(4)
        act(acme, 2)
        die_sending()
        wall.jumped = -30_000
        assert clock.now_ms() < (second.next_due() or 0) <= clock.now_ms() + 90_000
        second.forward()
        assert len(receiver.received) == 4
        wall.jumped = -3 * 3_600_000
        assert (second.next_due() or 0) <= clock.now_ms()
        second.forward()
        assert audit.verify_exported(lines(receiver.wait_for(7))).entries == 5
        die_sending()
        db.write(lambda: db.execute("UPDATE audit_forward SET checkpoint_seq = 0, checkpoint_at = 0"))
        wall.jumped = -6 * 3_600_000
        assert (second.next_due() or 0) <= clock.now_ms()


def test_a_checkpoint_vouches_for_what_was_sent(
    acme: TenantScope, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    act(acme, 3)
    file = tmp_path / "received.ndjson"

    def status() -> FileStatus:
        file.write_text("".join(f"{line}\n" for line in lines(receiver.received)), "utf8")
        with file.open("rb") as opened:
            return verify_file(opened, read_public_keys(public_keys_file().encode()))

    with closing(forwarding_to(f"tcp://127.0.0.1:{receiver.port}")) as forwarding:
        forwarding.forward()
        message = receiver.wait_for(4)[-1]
        assert b'tenant="acme" seq="3" actor="system" action="audit.checkpoint"' in message
        assert status().is_signed
        act(acme, 2)
        forwarding.forward()
        receiver.wait_for(6)
        assert (status().is_signed, status().unsigned) == (False, 2)
        due = forwarding.next_due()
        now = clock.now_ms()
        assert due is not None
        assert now < due <= now + CHECKPOINT_MS
        monkeypatch.setattr(clock, "now_ms", lambda: now + CHECKPOINT_MS)
        forwarding.forward()
        receiver.wait_for(7)
        assert status().is_signed
        assert forwarding.next_due() is None, "a trail that has not grown gets no other"
        receiver.received.pop(1)
        assert status().chain.reason == "entry 2 is missing"


def test_entries_are_sent_without_checkpoints_while_none_can_be_signed(
    acme: TenantScope, other: TenantScope, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    KEYS.current()
    act(acme, 1)
    act(other, 1)
    server = SyslogServer(Audit(f"tcp://127.0.0.1:{receiver.port}"), "gos.example")
    with closing(AuditForwarding(server, AuditKeys(Sealer(b"n" * 32)), CHECKPOINT_MS)) as forwarding:
        forwarding.forward()
        assert [b"audit.checkpoint" in message for message in receiver.wait_for(2)] == [False, False]
        due = forwarding.next_due()
        assert due is not None
        assert due > clock.now_ms(), "it is tried again at the next interval"
    assert "no checkpoint of acme can be signed" in caplog.text


def test_a_datagram_carries_an_entry(acme: TenantScope) -> None:
    act(acme, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)
        with closing(forwarding_to(f"udp://127.0.0.1:{server.getsockname()[1]}")) as forwarding:
            forwarding.forward()
        (line, _) = lines([server.recv(65_536), server.recv(65_536)])
    assert audit.verify_exported([line]).intact


@pytest.mark.parametrize(
    ("subject", "escaped"),
    [('a "b"', r'a \"b\"'), ("a]b", r"a\]b"), ("a\\b", r"a\\b"), ("a\nb", "a b"), ("Größe", "Größe")],
)
def test_values_of_structured_data_are_escaped(acme: TenantScope, subject: str, escaped: str) -> None:
    db.write(lambda: audit.record(acme, "key.revoke", subject))
    (entry,) = audit.list_entries(acme, audit.AuditFilter(), PageRequest()).items
    message = build_message(record_of(entry), "gos.example")
    match = MESSAGE.fullmatch(message)
    assert match is not None
    assert f'subject="{escaped}" hash="{entry.hash}"' in match[2].decode()
    assert audit.verify_exported([match[3].decode()]).intact


@pytest.mark.parametrize("address", ["tcp://logs.example:514", "udp://192.0.2.1:514", "tls://[2001:db8::1]:6514"])
def test_addresses_of_servers(address: str) -> None:
    assert load_config(environment={}, flags={"audit.syslog": address}).audit.syslog == address


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"audit.syslog": "logs.example:514"}, "audit.syslog must be"),
        ({"audit.syslog": "tcp://logs.example"}, "audit.syslog must be"),
        ({"audit.syslog": "tcp://logs.example:70000"}, "audit.syslog must be"),
        ({"audit.syslog": "https://logs.example:514"}, "audit.syslog must be"),
        ({"audit.ca_file": "/nowhere"}, "audit.ca_file has no effect"),
        ({"audit.syslog": "tcp://logs.example:514", "audit.ca_file": "/nowhere"}, "audit.ca_file has no effect"),
        ({"audit.syslog": "tls://logs.example:6514", "audit.ca_file": "/nowhere"}, "audit.ca_file: the file /nowhere does not"),
        ({"audit.otlp": "siem.example:4318"}, "audit.otlp must be"),
        ({"audit.otlp": "http://siem.example:4318", "audit.ca_file": "/nowhere"}, "audit.ca_file has no effect"),
        ({"audit.otlp": "https://siem.example:4318", "audit.otlp_headers": ["no colon"]}, "audit.otlp_headers: each header"),
        ({"audit.checkpoint_minutes": 0}, "audit.checkpoint_minutes must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(message)):
        load_config(environment={}, flags=settings)
