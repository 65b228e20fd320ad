"""The audit trail: whatever is changed, removed or put in is found, tenant by tenant."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from appliance.core import logs as process_log
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditChecks, audit
from appliance.monitor.audit import AuditFilter, ChainStatus


def act(scope: TenantScope, count: int = 5) -> None:
    for number in range(count):
        db.write(partial(audit.record, scope, "key.revoke", f"key_{number}", {"number": number}))


def test_a_chain_is_numbered_linked_and_verified(acme: TenantScope, other: TenantScope) -> None:
    act(acme)
    act(other, 2)
    entries = audit.list_entries(acme, AuditFilter(), PageRequest()).items
    assert [entry.seq for entry in entries] == [5, 4, 3, 2, 1]
    assert entries[-1].previous_hash == audit.GENESIS
    assert entries[0].previous_hash == entries[1].hash
    assert entries[0].actor == "user:usr_1"
    assert audit.verify(acme) == ChainStatus(True, 5, 1, 5)
    assert audit.verify(other) == ChainStatus(True, 2, 1, 2)


def test_an_empty_trail_is_intact(acme: TenantScope) -> None:
    assert audit.verify(acme) == ChainStatus(True, 0, None, None)


def test_a_hash_can_be_recomputed(acme: TenantScope) -> None:
    act(acme, 1)
    (entry,) = audit.list_entries(acme, AuditFilter(), PageRequest()).items
    content = ["acme", 1, entry.at, "user:usr_1", "key.revoke", "key_0", '{"number":0}', "0" * 64]
    assert entry.hash == hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.parametrize(
    ("tamper", "broken", "reason"),
    [
        ("UPDATE audit_entry SET subject = 'key_9' WHERE seq = 3", 3, "its content was changed"),
        ("UPDATE audit_entry SET actor = 'user:usr_9' WHERE seq = 1", 1, "its content was changed"),
        ("UPDATE audit_entry SET hash = 'x' WHERE seq = 5", 5, "its content was changed"),
        ("DELETE FROM audit_entry WHERE seq = 2", 3, "entry 2 is missing"),
        ("DELETE FROM audit_entry WHERE seq = 1", 2, "entry 1 is missing"),
        ("DELETE FROM audit_entry WHERE seq > 3", 4, "entries up to 5 are missing"),
        ("DELETE FROM audit_entry", 1, "entries up to 5 are missing"),
    ],
)
def test_tampering_is_detected(acme: TenantScope, other: TenantScope, tamper: str, broken: int, reason: str) -> None:
    act(acme)
    db.write(lambda: db.execute(tamper))
    act(other)
    status = audit.verify(acme)
    assert (status.intact, status.broken_seq, status.reason) == (False, broken, reason)
    assert audit.verify(other).intact


def test_an_inserted_entry_with_a_valid_hash_is_detected(acme: TenantScope) -> None:
    act(acme)
    (second,) = [entry for entry in audit.list_entries(acme, AuditFilter(), PageRequest()).items if entry.seq == 2]
    second.subject = "key_other"
    changes = (second.subject, audit.hash_of(second))
    db.write(lambda: db.execute("UPDATE audit_entry SET subject = ?, hash = ? WHERE seq = 2", changes))
    assert audit.verify(acme).reason == "it does not follow its predecessor"


def test_a_failed_write_leaves_no_entry_and_no_gap(acme: TenantScope) -> None:
    def fail() -> None:
        audit.record(acme, "key.revoke", "key_1")
        raise RuntimeError("no")

    act(acme, 1)
    with pytest.raises(RuntimeError):
        db.write(fail)
    act(acme, 1)
    assert audit.verify(acme) == ChainStatus(True, 2, 1, 2)


def test_many_writers_make_one_chain(acme: TenantScope) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: act(acme, 10), range(8)))
    assert audit.verify(acme) == ChainStatus(True, 80, 1, 80)


def test_retention_cuts_the_chain_and_it_still_verifies(acme: TenantScope, other: TenantScope) -> None:
    act(acme)
    act(other, 2)
    db.write(lambda: db.execute("UPDATE audit_entry SET at = at - 1000000 WHERE tenant_id = 'other' AND seq = 1"))
    newest = audit.list_entries(acme, AuditFilter(), PageRequest()).items[0].at
    assert audit.purge(newest - 1000) == 1
    assert audit.purge(newest + 60_000) == 6
    assert audit.verify(acme) == ChainStatus(True, 0, None, None)
    act(acme, 1)
    assert audit.verify(acme) == ChainStatus(True, 1, 6, 6)


def test_entries_are_found_by_filter(acme: TenantScope) -> None:
    act(acme, 3)
    db.write(lambda: audit.record(acme.with_actor("key:key_9"), "secret.set", "erp_password"))

    def subjects(filters: AuditFilter) -> list[str]:
        return [entry.subject for entry in audit.list_entries(acme, filters, PageRequest()).items]

    assert subjects(AuditFilter(action="secret.set")) == ["erp_password"]
    assert subjects(AuditFilter(actor="key:key_9")) == ["erp_password"]
    assert subjects(AuditFilter(subject="key_1")) == ["key_1"]
    assert subjects(AuditFilter(since=0, until=1)) == []


def test_secrets_are_redacted(acme: TenantScope) -> None:
    process_log.remember_secret("tops3cret")
    db.write(lambda: audit.record(acme, "secret.set", "to tops3cret", {"value": "tops3cret"}))
    (entry,) = audit.list_entries(acme, AuditFilter(), PageRequest()).items
    assert "tops3cret" not in entry.fields + entry.subject


def test_an_export_can_be_verified_without_the_appliance(acme: TenantScope) -> None:
    act(acme, 6)
    lines = list(audit.iter_exported(acme))
    assert audit.verify_exported(lines) == ChainStatus(True, 6, 1, 6)
    assert audit.verify_exported([*lines[2:5], "\n"]) == ChainStatus(True, 3, 3, 5)
    assert audit.verify_exported([lines[0], *lines[2:]]) == ChainStatus(False, 1, 1, 1, 3, "entry 2 is missing")
    changed = lines[3].replace("key_3", "key_9")
    assert audit.verify_exported([*lines[:3], changed]) == ChainStatus(False, 3, 1, 3, 4, "its content was changed")
    assert audit.verify_exported([]) == ChainStatus(True, 0, None, None)


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"seq": 1}', '"text"'])
def test_a_line_that_is_no_entry_is_named(acme: TenantScope, line: str) -> None:
    act(acme, 1)
    with pytest.raises(ValidationFailed, match="line 2 is not an exported entry"):
        audit.verify_exported([*audit.iter_exported(acme), line])


def test_an_export_may_be_of_some_time_only(acme: TenantScope) -> None:
    act(acme, 3)
    at = [entry.at for entry in audit.list_entries(acme, AuditFilter(), PageRequest(sort="seq")).items]
    assert len(list(audit.iter_exported(acme, until=at[0]))) == 0
    assert len(list(audit.iter_exported(acme, since=at[0]))) == 3


def test_a_broken_trail_is_logged_once_and_counted(acme: TenantScope, other: TenantScope, caplog: pytest.LogCaptureFixture) -> None:
    act(acme)
    act(other, 2)
    checks = AuditChecks()
    checks.verify_all()
    assert (checks.count_broken(), caplog.messages) == (0, [])
    db.write(lambda: db.execute("UPDATE audit_entry SET subject = 'key_9' WHERE tenant_id = 'acme' AND seq = 3"))
    checks.verify_all()
    checks.verify_all()
    assert checks.count_broken() == 1
    broken = "the audit trail of tenant acme is broken at entry 3: its content was changed; `gos audit verify` says more"
    assert caplog.messages == [broken]
    db.write(lambda: db.execute("UPDATE audit_entry SET subject = 'key_9' WHERE tenant_id = 'acme' AND seq = 2"))
    checks.verify_all()
    assert len(caplog.messages) == 2
