"""Entries of audit trails reach a collector by OTLP, each at least once and in order, whatever it answers and whoever dies."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from email.utils import formatdate
from functools import partial

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from appliance.connectors.testing import Answer, Received
from appliance.core import clock
from appliance.core.config.sections import Audit, Otlp
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.monitor.forwarding import (
    BATCH,
    BATCH_BYTES,
    LEASE_MS,
    MOST_PAUSE_MS,
    PAUSE_MS,
    AuditForwarding,
    SyslogServer,
    list_rejections,
    read_lag,
)
from appliance.monitor.otlp import AuditCollector
from appliance.monitor.signed_trails import AuditKeys
from tests.architecture.source_tree import ROOT
from tests.monitor.test_audit import act
from tests.monitor.test_audit_forwarding import CHECKPOINT_MS, Receiver

from .collector import LOGS, Collector, to_dict

CHILD = """
import sys
from appliance.core.config.sections import Otlp
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.monitor.forwarding import AuditForwarding
from appliance.monitor.otlp import AuditCollector
from appliance.monitor.signed_trails import AuditKeys
db.open_database(sys.argv[1])
AuditForwarding(AuditCollector(Otlp(endpoint=sys.argv[2]), {}), AuditKeys(Sealer(b"m" * 32)), 900_000).forward()
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as running:
        yield running


def forwarding_to(collector: Collector, **settings: object) -> AuditForwarding:
    chosen = replace(Otlp(endpoint=collector.url), **settings)  # type: ignore[arg-type]
    resource = {"service.name": "gos", "service.version": "1", "service.instance.id": "one"}
    return AuditForwarding(AuditCollector(chosen, resource), AuditKeys(Sealer(b"m" * 32)), CHECKPOINT_MS)


def bodies(collector: Collector) -> list[str]:
    return [record.body.string_value for record in collector.log_records()]


def is_checkpoint(line: str) -> bool:
    return bool(json.loads(line)["action"] == "audit.checkpoint")


class Clock:
    """The clock of the appliance, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: self.now)


def test_an_entry_is_a_log_record(acme: TenantScope, collector: Collector) -> None:
    act(acme, 1)
    before = clock.now_ms() * 1_000_000
    with closing(forwarding_to(collector, headers=("Authorization: Bearer of-the-siem",))) as forwarding:
        forwarding.forward()
    record, checkpoint = collector.log_records()
    (line,) = audit.iter_exported(acme)
    entry = json.loads(line)
    assert record.body.string_value == line.rstrip("\n")
    assert record.time_unix_nano == entry["at"] * 1_000_000
    assert before <= record.observed_time_unix_nano <= clock.now_ms() * 1_000_000
    assert (record.severity_number, record.severity_text, record.event_name) == (9, "INFO", "gos.audit")
    assert to_dict(record.attributes) == {
        "tenant": "acme", "seq": 1, "actor": "user:usr_1", "action": "key.revoke", "subject": "key_0", "hash": entry["hash"],
    }  # fmt: skip
    about = to_dict(checkpoint.attributes)
    assert (about["action"], about["seq"], about["hash"]) == ("audit.checkpoint", 1, entry["hash"])
    resource = to_dict(collector.log_requests()[0].resource_logs[0].resource.attributes)
    assert resource == {"service.name": "gos", "service.version": "1", "service.instance.id": "one"}
    headers = collector.received[0].headers
    assert (headers["authorization"], headers["content-type"]) == ("Bearer of-the-siem", "application/x-protobuf")


def test_entries_arrive_in_order_and_can_be_verified(acme: TenantScope, other: TenantScope, collector: Collector) -> None:
    act(acme, BATCH + 3)
    act(other, 2)
    with closing(forwarding_to(collector)) as forwarding:
        assert forwarding.next_due() is not None
        forwarding.forward()
        assert forwarding.next_due() is None
        act(acme, 1)
        forwarding.forward()
    own = [line for line in bodies(collector) if json.loads(line)["tenant_id"] == "acme"]
    assert audit.verify_exported(own) == audit.verify(acme)
    assert len(own) == BATCH + 4 + 1


def test_large_entries_are_sent_in_smaller_requests(acme: TenantScope, collector: Collector) -> None:
    for number in range(100):
        db.write(partial(audit.record, acme, "key.revoke", f"key_{number}", {"text": "x" * 15_000}))
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
    assert len(bodies(collector)) == 101
    assert all(len(each.body) < BATCH_BYTES + 100_000 for each in collector.received)
    assert len(collector.received) == 3, "two of entries, and one of the checkpoint"


def test_both_destinations_have_their_own_positions(acme: TenantScope, collector: Collector) -> None:
    act(acme, 3)
    with closing(Receiver()) as receiver:
        server = SyslogServer(Audit(f"tcp://127.0.0.1:{receiver.port}"), "gos.example")
        with closing(AuditForwarding(server, AuditKeys(Sealer(b"m" * 32)), CHECKPOINT_MS)) as to_syslog:
            to_syslog.forward()
            receiver.wait_for(4)
            assert (to_syslog.next_due(), read_lag("syslog").trails, read_lag("otlp").trails) == (None, 0, 1)
            with closing(forwarding_to(collector)) as to_collector:
                to_collector.forward()
                assert to_collector.next_due() is None
            assert len(bodies(collector)) == len(receiver.received) == 4


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_entries_wait_whatever_the_collector_answers(
    acme: TenantScope, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level("INFO")
    time = Clock(monkeypatch)
    act(acme, 3)
    collector.answer(LOGS, status, b"")
    with closing(forwarding_to(collector)) as forwarding:
        pauses = []
        for _ in range(8):
            forwarding.forward()
            pauses.append(forwarding._paused_until - time.now)
            forwarding.forward()  # too early
            time.now = forwarding._paused_until
        assert pauses == [min(PAUSE_MS << number, MOST_PAUSE_MS) for number in range(8)]
        assert len(collector.received) == 8
        assert caplog.text.count(f"answered {status}; entries wait") == 1
        collector.received.clear()
        collector.answer(LOGS, 200, b"")
        forwarding.forward()
        assert audit.verify_exported(bodies(collector)).entries == 3
        assert "takes entries again" in caplog.text


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_collector_says_how_long_to_wait(
    acme: TenantScope, collector: Collector, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    time = Clock(monkeypatch)
    act(acme, 1)
    later = formatdate(time.now / 1000 + 121, usegmt=True)
    collector.answer(LOGS, 503, b"", Retry_After="121" if form == "seconds" else later)
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        due = forwarding.next_due()
        assert due is not None
        assert 120_000 <= due - time.now <= 121_000


def test_records_refused_for_good_are_counted_and_not_sent_again(
    acme: TenantScope, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    act(acme, 5)
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 2
    answer.partial_success.error_message = "too\nold"
    collector.answer(LOGS, 200, answer.SerializeToString(), Content_Type="application/x-protobuf")
    arrived = collector.answers[LOGS]

    def first_only(request: Received) -> Answer:
        collector.answer(LOGS, 200, b"")
        return arrived(request)

    collector.answers[LOGS] = first_only
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert forwarding.next_due() is None
    assert len(bodies(collector)) == 6
    (rejections,) = list_rejections()
    assert (rejections.count, rejections.first_seq, rejections.last_seq, rejections.reason) == (2, 1, 5, "too old")
    assert "has refused 2 of the entries 1 to 5 of the audit trail of acme: too old" in caplog.text


def test_entries_go_to_the_collector_and_nowhere_else(
    acme: TenantScope, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither through a proxy of the environment nor after a redirect."""
    act(acme, 1)
    with closing(Collector()) as elsewhere:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, elsewhere.url)
        collector.answer(LOGS, 307, b"", Location=f"{elsewhere.url}{LOGS}")
        with closing(forwarding_to(collector)) as forwarding:
            forwarding.forward()
        assert (len(collector.received), elsewhere.received) == (1, [])
    assert read_lag("otlp").trails == 1


def test_an_answer_that_is_none_of_otlp_is_no_delivery(acme: TenantScope, collector: Collector) -> None:
    act(acme, 1)
    collector.answer(LOGS, 200, b"\xff\xff", Content_Type="application/x-protobuf")
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
    assert read_lag("otlp").trails == 1


def test_a_trail_that_is_refused_does_not_stop_others(acme: TenantScope, other: TenantScope, collector: Collector) -> None:
    act(acme, 1)
    act(other, 1)

    def refuse_acme(request: Received) -> Answer:
        return Answer(400 if b'"tenant_id": "acme"' in request.body else 200, body=b"")

    collector.answers[LOGS] = refuse_acme
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert forwarding.next_due() == forwarding._paused_until
    assert read_lag("otlp").trails == 1


def test_a_trail_that_another_process_has_begun_to_send_is_left_to_it(
    acme: TenantScope, other: TenantScope, collector: Collector
) -> None:
    """The first process has seen that both trails are due, and sends one while a second begins with the other."""
    act(acme, 1)
    act(other, 1)
    started, done = threading.Event(), threading.Event()
    threads = list[threading.Thread]()

    def second() -> None:
        with closing(forwarding_to(collector)) as forwarding:
            forwarding.forward()

    def answer(request: Received) -> Answer:
        if b'"tenant_id": "other"' in request.body:
            started.set()
            assert done.wait(20)
        elif not threads:
            threads.append(threading.Thread(target=second))
            threads[0].start()
            assert started.wait(20)
        return Answer(200, body=b"")

    collector.answers[LOGS] = answer
    with closing(forwarding_to(collector)) as first:
        first.forward()
        assert [json.loads(line)["tenant_id"] for line in bodies(collector)] == ["acme", "other", "acme"]
        done.set()
        threads[0].join(20)
        assert first.next_due() is None
    assert len(bodies(collector)) == 4


def test_a_tenant_that_is_being_imported_or_deleted_is_left_alone(
    acme: TenantScope, other: TenantScope, collector: Collector
) -> None:
    act(acme, 2)
    act(other, 1)
    db.write(lambda: db.execute("UPDATE tenant SET closed_at = ? WHERE id = 'acme'", (clock.now_ms(),)))
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert {json.loads(line)["tenant_id"] for line in bodies(collector)} == {"other"}
        db.write(lambda: db.execute("UPDATE tenant SET closed_at = NULL"))
        forwarding.forward()
    assert len(bodies(collector)) == 5


def test_a_process_killed_between_sending_and_noting_loses_nothing(
    acme: TenantScope, collector: Collector, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector kills the process when it has the second batch, before it answers; another process continues."""
    act(acme, 2 * BATCH + 50)
    children = list[subprocess.Popen[bytes]]()
    usual: Callable[[Received], Answer] = collector.answers[LOGS]

    def kill_at_second(request: Received) -> Answer:
        if len(collector.received) == 2:
            os.kill(children[0].pid, signal.SIGKILL)
            children[0].wait()
        return usual(request)

    collector.answers[LOGS] = kill_at_second
    children.append(subprocess.Popen([sys.executable, "-c", CHILD, store_url, collector.url], cwd=ROOT))
    assert children[0].wait(60) == -signal.SIGKILL
    time = Clock(monkeypatch)
    with closing(forwarding_to(collector)) as forwarding:
        forwarding.forward()
        assert len(collector.received) == 2, "the lease of the dead process has not run out"
        due = forwarding.next_due()
        assert due is not None
        assert due <= time.now + LEASE_MS
        time.now = due
        forwarding.forward()
        assert forwarding.next_due() is None
    numbers = [json.loads(line)["seq"] for line in bodies(collector) if not is_checkpoint(line)]
    again = list(range(BATCH + 1, 2 * BATCH + 1))
    assert numbers == [*range(1, 2 * BATCH + 1), *again, *range(2 * BATCH + 1, 2 * BATCH + 51)]
    unique = list(dict.fromkeys(bodies(collector)))
    assert audit.verify_exported(unique) == audit.verify(acme)
