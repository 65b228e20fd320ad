"""The copy that a person gets: everything of theirs, nothing of others, no secrets."""

import io
import json
import zipfile
from functools import partial
from typing import Any

import pytest

from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.personal_data import KINDS, Subject, count_rows, export_to, find_subject, find_visitor, rows
from appliance.tenants import accounts, people, service
from tests.personal_data.conftest import ANN, BOB, PASSWORD
from tests.personal_data.filling import FIRST, SECOND, SECRET, Human


def export(subject: Subject, tenant_id: str | None = None) -> dict[str, Any]:
    """The files of an export: the explanation as text, the others as JSON."""
    file = io.BytesIO()
    export_to(file, subject, "system", Config(), tenant_id=tenant_id)
    with zipfile.ZipFile(file) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    return {name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()}


def entries(tenant: str) -> list[Any]:
    return list(audit.list_entries(TenantScope(tenant, "system"), audit.AuditFilter(), PageRequest(50)).items)


def test_an_export_has_a_file_for_each_kind_and_says_what_it_is(ann: Human) -> None:
    files = export(find_subject(ANN))
    expected = {f"{kind.id}.json" for kind in KINDS if kind.is_exported and kind.id != "former-account"}
    assert files.keys() == expected | {"README.txt"}
    assert ANN in files["README.txt"]
    assert "400 days (retention.audit_days)" in files["README.txt"]
    for kind in KINDS:
        if f"{kind.id}.json" in files:
            assert files[f"{kind.id}.json"].keys() == {table.name for table in kind.tables}
            assert all(files[f"{kind.id}.json"].values()), kind.id
            assert kind.title in files["README.txt"]
    [account] = files["account.json"]["person"]
    assert account["login"] == ANN
    assert account["id"] == ann.user_id
    assert account["created_at"].endswith("Z")


def test_an_export_contains_nothing_secret_and_nobody_else(ann: Human, bob: Human) -> None:
    text = json.dumps(export(find_subject(ANN)))
    assert SECRET not in text
    assert "argon2" not in text
    assert ann.login in text
    assert ann.user_id in text
    for other in (bob.login, bob.user_id, "third@example.com", "usr_third"):
        assert other not in text


def test_others_are_masked_in_rows_and_in_trailabout_the_person(ann: Human, bob: Human) -> None:
    scope = TenantScope(FIRST, f"user:{bob.user_id}")
    db.write(lambda: audit.record(scope, "member.add", ann.user_id, {"login": ANN, "added_by": {"login": "bob"}, "to": BOB}))
    db.write(lambda: db.execute("UPDATE approval SET decided_by = ?, decided_login = ?", (f"user:{bob.user_id}", BOB)))
    files = export(find_subject(ANN))
    entry = next(each for each in files["audit-trail.json"]["audit_entry"] if "to" in each["fields"])
    other = "another person"
    assert entry["actor"] == other
    assert entry["subject"] == ann.user_id
    assert entry["fields"] == {"login": ANN, "added_by": {"login": other}, "to": other}
    [approval] = files["approvals.json"]["approval"]
    assert approval["decided_by"] == approval["decided_login"] == other
    assert approval["requested_by"] == f"user:{ann.user_id}"


def test_a_large_table_is_read_in_parts(ann: Human, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PAGE", 2)
    scope = TenantScope(SECOND, f"user:{ann.user_id}")
    for number in range(5):
        db.write(partial(audit.record, scope, "test.number", str(number)))
    numbers = export(find_subject(ANN))["audit-trail.json"]["audit_entry"]
    assert [each["subject"] for each in numbers if each["action"] == "test.number"] == ["0", "1", "2", "3", "4"]


def test_every_tenant_that_has_something_records_the_export_by_the_id(ann: Human) -> None:
    export(find_subject(ANN))
    for tenant in (FIRST, SECOND):
        entry = entries(tenant)[0]
        assert (entry.action, entry.subject, entry.actor) == ("person.export", ann.user_id, "system")
        assert ANN not in entry.fields


def test_who_it_is(ann: Human) -> None:
    assert find_subject(f" {ANN.upper()} ") == find_subject(ann.user_id)
    assert find_subject(ANN).keys == (ann.key,)
    assert find_subject("visitor@example.com") == Subject("visitor@example.com", address="visitor@example.com")
    for text in ("nobody", "usr_nobody", "@example.com", "a b@example.com"):
        with pytest.raises(NotFound, match="there is no user"):
            find_subject(text)


def test_a_login_that_was_used_again_is_the_new_persons(ann: Human) -> None:
    accounts.delete_account(ANN)
    former = find_subject(ANN)
    assert (former.user_id, former.has_account, former.address) == (ann.user_id, False, ANN)
    successor = people.create_user(ANN, PASSWORD)
    assert find_subject(ANN).user_id == successor.id
    assert find_subject(ann.user_id).address == ""
    accounts.delete_account(ANN)
    with pytest.raises(Conflict, match=f"2 deleted accounts had the login .*{ann.user_id}"):
        find_subject(ANN)


def test_a_tenant_exports_what_its_visitors_left_there_only(ann: Human) -> None:
    files = export(find_visitor(ANN), FIRST)
    assert files.keys() == {"README.txt", "email-codes.json", "visits.json", "downloads.json", "share-audiences.json"}
    assert [each["tenant_id"] for each in files["downloads.json"]["document_download"]] == [FIRST]
    assert entries(FIRST)[0].action == "person.export"
    assert ANN not in entries(FIRST)[0].subject
    assert count_rows(find_visitor(ANN), SECOND) == []
    assert service.get_tenant(SECOND) is not None
