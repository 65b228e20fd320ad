"""What `gos doctor` says about the systems that get the entries of audit trails."""

import argparse
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from appliance.app.audit_forwarding import make_forwardings
from appliance.app.findings.audit_trails import LONG_LAG_MS, forwarding_findings
from appliance.cli.audit import run_rejections
from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import APPLIANCE
from appliance.monitor import AuditFilter, audit
from appliance.monitor.forwarding import REJECTION_DAYS, acknowledge_rejections, list_rejections
from appliance.tenants import appliance_scope, service
from tests.cli.test_operation_findings import configure
from tests.monitor.collector import LOGS, Collector
from tests.monitor.test_audit import act
from tests.store.opening import migrated


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Iterator[None]:
    """A database whose only trail is that of a tenant with two entries."""
    with migrated(f"sqlite:///{tmp_path}/gos.db"):
        service.create_tenant("acme", "Acme")
        for table in ("audit_entry", "audit_chain"):
            db.write(partial(db.execute, f"DELETE FROM {table} WHERE tenant_id = ?", (APPLIANCE,)))  # noqa: S608  our own names
        act(service.system_scope("acme"), 2)
        yield


def test_a_syslog_server_that_does_not_answer_fails(tmp_path: Path) -> None:
    assert list(forwarding_findings(configure(tmp_path))) == []
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = configure(tmp_path, audit__syslog=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        assert [level for level, _ in forwarding_findings(config)] == ["ok"]
    config = configure(tmp_path, audit__syslog=f"tcp://127.0.0.1:{free_port()}")
    ((level, text),) = forwarding_findings(config)
    assert (level, "cannot be reached" in text, "audit.ca_file" in text) == ("FAIL", True, True), text


def test_a_collector_that_refuses_fails(tmp_path: Path) -> None:
    with closing(Collector()) as collector:
        config = configure(tmp_path, audit__otlp=collector.url)
        assert [level for level, _ in forwarding_findings(config)] == ["ok"]
        assert collector.log_records() == [], "nothing is sent"
        collector.answer(LOGS, 401, b"")
        ((level, text),) = forwarding_findings(config)
        assert (level, "answered 401" in text, "audit.otlp_headers" in text) == ("FAIL", True, True), text


def test_a_system_that_lags_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = clock.now_ms() + LONG_LAG_MS + 60_000
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    with closing(Collector()) as collector:
        config = configure(tmp_path, audit__otlp=collector.url)
        _, (level, text) = forwarding_findings(config)
        assert (level, "entries of 1 audit trails wait" in text, "gos worker" in text) == ("FAIL", True, True), text


def refuse(collector: Collector, count: int, reason: str) -> None:
    """Have the collector take all further records but so many of each request."""
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = count
    answer.partial_success.error_message = reason
    collector.answer(LOGS, 200, answer.SerializeToString(), Content_Type="application/x-protobuf")


def forward(config: Config) -> None:
    for forwarding in make_forwardings(config, Sealer(load_or_make_key(config.data / "key")), "test"):
        with closing(forwarding):
            forwarding.forward()


def test_refused_records_fail_until_somebody_acknowledges_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The finding says what was refused, when and why; what is delivered later does not end it, what was shown is acknowledged."""
    with closing(Collector()) as collector:
        config = configure(tmp_path, audit__otlp=collector.url, storage__database=f"sqlite:///{tmp_path}/gos.db")
        refuse(collector, 1, "attribute too\nlong")
        forward(config)
        collector.answer(LOGS, 200, b"")
        act(service.system_scope("acme"), 1)
        forward(config)
        _, (level, text) = forwarding_findings(config)
        assert level == "FAIL"
        (rejections,) = list_rejections()
        assert (rejections.count, rejections.first_seq, rejections.last_seq) == (2, 1, 2), "an entry, and the checkpoint after it"
        assert "has refused 2 records of the audit trail of acme for good, among the entries 1 to 2" in text
        assert f"last at {clock.rfc3339(rejections.at)}: attribute too long" in text
        assert f"`{rejections.export_command}`" in text
        act(service.system_scope("acme"), 1)
        refuse(collector, 1, "another reason")
        forward(config)
        acknowledge_rejections("acme", "otlp", rejections.total, scope=appliance_scope())
        _, (level, text) = forwarding_findings(config)
        assert (level, "has refused 1 record of" in text, "another reason" in text) == ("FAIL", True, True), text
        with pytest.raises(NotFound):
            acknowledge_rejections("acme", "otlp", rejections.total, scope=appliance_scope())
        with pytest.raises(NotFound):
            acknowledge_rejections("acme", "otlp", 99, scope=appliance_scope())
        args = argparse.Namespace(load=lambda: config, acknowledge=True, json=True)
        assert run_rejections(args) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["trail"], row["destination"], row["records"], row["reason"]) == ("acme", "audit.otlp", 1, "another reason")
        assert [level for level, _ in forwarding_findings(config)] == ["ok"]
        entries = audit.list_entries(appliance_scope(), AuditFilter(action="audit.acknowledge"), PageRequest()).items
        assert [entry.subject for entry in entries] == ["acme", "acme"]


def test_refused_records_that_nobody_acknowledges_are_listed_but_fail_no_more_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Collector()) as collector:
        config = configure(tmp_path, audit__otlp=collector.url)
        refuse(collector, 1, "")
        forward(config)
        assert "it did not say why" in list(forwarding_findings(config))[1][1]
        later = clock.now_ms() + REJECTION_DAYS * 86_400_000
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        assert [level for level, _ in forwarding_findings(config)] == ["ok"]
        assert len(list_rejections()) == 1
