"""What a collector refuses, answers slowly, or asks to wait for delays its entries, and nothing else."""

import socket
import threading
from contextlib import closing, suppress
from functools import partial

import pytest

from appliance.connectors.testing import Answer, Received
from appliance.core.config.sections import Otlp
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.monitor.forwarding import AuditForwarding, read_lag
from appliance.monitor.otlp import AuditCollector, audit_records
from appliance.monitor.otlp.audit_records import read_retry_after
from appliance.monitor.signed_trails import AuditKeys
from tests.monitor.test_audit import act
from tests.monitor.test_audit_forwarding import CHECKPOINT_MS

from .collector import LOGS, Collector
from .test_audit_to_collector import Clock, bodies, collector, forwarding_to, is_checkpoint

__all__ = ["collector"]


def test_entries_that_are_too_large_together_are_sent_in_smaller_parts(acme: TenantScope, collector: Collector) -> None:
    """As through a proxy that takes 64 KiB at once."""
    for number in range(40):
        db.write(partial(audit.record, acme, "key.revoke", f"key_{number}", {"text": "x" * 12_000}))
    accepted: list[bytes] = []

    def limited(request: Received) -> Answer:
        is_small = len(request.body) <= 64 << 10
        if is_small:
            accepted.append(request.body)
        return Answer(200 if is_small else 413, body=b"")

    collector.answers[LOGS] = limited
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert forwarding.next_due() is None
    collector.received = [each for each in collector.received if each.body in accepted]
    lines = bodies(collector)
    assert len(lines) == 41
    assert audit.verify_exported(lines) == audit.verify(acme)


def test_an_entry_that_is_refused_alone_waits_and_is_named(
    acme: TenantScope, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """What is before it has arrived; nothing overtakes it."""
    act(acme, 20)

    def refuse_one(request: Received) -> Answer:
        return Answer(400 if b'"subject": "key_12"' in request.body else 200, body=b"")

    collector.answers[LOGS] = refuse_one
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert "answered 400 to entry 13 of acme; entries wait" in caplog.text
        ((seq,),) = db.rows("SELECT seq FROM audit_forward WHERE tenant_id = 'acme'")
        assert seq == 12


@pytest.mark.parametrize("value", ["9" * 5000, "Mon, 01 Jan 2020 00:00:00 +99999999999999", "soon", "-5", ""])
def test_a_pause_that_is_none_is_passed_over(value: str) -> None:
    assert read_retry_after(value) == 0


def test_an_answer_that_does_not_end_is_given_up(
    acme: TenantScope, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each piece of it comes in time."""
    act(acme, 1)
    monkeypatch.setattr(audit_records, "ANSWER_SECONDS", 0.3)
    given_up = threading.Event()

    def trickle(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(ConnectionError):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 60000\r\n\r\n")
            while not given_up.wait(0.02):
                connection.sendall(b"\x00")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=trickle, args=(listening,), daemon=True)
        thread.start()
        chosen = Otlp(endpoint=f"http://127.0.0.1:{listening.getsockname()[1]}")
        with closing(AuditForwarding(AuditCollector(chosen, {}), AuditKeys(Sealer(b"m" * 32)), CHECKPOINT_MS)) as forwarding:
            forwarding.forward()
        given_up.set()
        thread.join(20)
    assert "did not end its answer within 0 s; entries wait" in caplog.text
    assert read_lag("otlp").trails == 1


def test_a_clock_that_is_set_back_delays_neither_entries_nor_checkpoints(
    acme: TenantScope, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a machine that has started in a wrong year."""
    time = Clock(monkeypatch)
    act(acme, 1)
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert [is_checkpoint(line) for line in bodies(collector)] == [False, True]
        act(acme, 1)
        collector.answer(LOGS, 503, b"")
        forwarding.forward()
        collector.answer(LOGS, 200, b"")
        collector.received.clear()
        time.now -= 365 * 86_400_000
        due = forwarding.next_due()
        assert due is not None
        assert due <= time.now
        forwarding.forward()
        assert [is_checkpoint(line) for line in bodies(collector)] == [False, True]
        # A checkpoint alone comes in time, too.
        act(acme, 1)
        forwarding.forward()
        time.now -= 86_400_000
        due = forwarding.next_due()
        assert due is not None
        assert due <= time.now
        forwarding.forward()
        assert [is_checkpoint(line) for line in bodies(collector)] == [False, True, False, True]
        assert forwarding.next_due() is None
