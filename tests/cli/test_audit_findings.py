"""What `gos doctor` says about the systems that get the entries of audit trails."""

import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from appliance.app.findings.audit_trails import LONG_LAG_MS, forwarding_findings
from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import APPLIANCE
from appliance.tenants import service
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


def test_a_system_that_lags_or_has_refused_records_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = clock.now_ms() + LONG_LAG_MS + 60_000
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    with closing(Collector()) as collector:
        config = configure(tmp_path, audit__otlp=collector.url)
        _, (level, text) = forwarding_findings(config)
        assert (level, "entries of 1 audit trails wait" in text, "gos worker" in text) == ("FAIL", True, True), text
        db.write(lambda: db.execute("INSERT INTO audit_forward VALUES ('acme', 'otlp', 2, 0, 0, 2, 0, 7)"))
        _, (level, text) = forwarding_findings(config)
        assert (level, "has refused 7 records" in text) == ("FAIL", True), text
