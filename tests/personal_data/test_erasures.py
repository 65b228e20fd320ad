"""An erasure deletes what concerns only the person, replaces their login in what stays, and touches nobody else."""

import json
from typing import Any

import pytest

from appliance.core.errors import Conflict, NotFound
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.monitor import audit
from appliance.personal_data import KINDS, Erasure, count_rows, erase, find_subject, find_visitor
from appliance.tenants import accounts, people
from tests.personal_data.conftest import ANN, BOB, PASSWORD
from tests.personal_data.filling import FIRST, SECOND, Human, list_tables, read_all
from tests.personal_data.test_exports import entries


def read_database() -> dict[str, list[dict[str, Any]]]:
    return {table: read_all(table) for table in list_tables() if table not in ("audit_entry", "audit_chain", "migration")}


def rows_with(text: str, database: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {table for table, rows in database.items() if any(text in str(row) for row in rows)}


def test_the_login_is_nowhere_afterwards_but_where_the_register_says(ann: Human) -> None:
    assert len(rows_with(ANN, read_database())) > 12
    erased = erase(find_subject(ANN), "system")
    database = read_database()
    assert rows_with(ANN, database) == {"document_share"}
    assert rows_with(erased.pseudonym, database) >= {
        "deleted_person", "approval", "approval_vote", "document_vote", "document_review", "document_download", "skill", "alert",
    }
    deleted = {table.name for kind in KINDS if kind.erasure is Erasure.DELETE for table in kind.tables}
    assert rows_with(ann.user_id, database) & deleted == {"invitation"}  # that they sent
    with pytest.raises(NotFound):
        people.find_user(ANN)
    former = accounts.find_former_name(ann.user_id)
    assert former == accounts.FormerName(erased.pseudonym, is_deleted=True)


def test_nobody_else_is_touched(ann: Human, bob: Human) -> None:
    before = read_database()
    erase(find_subject(ANN), "system")
    after = read_database()
    for table, rows in before.items():
        theirs = [row for row in rows if bob.user_id in str(row) or bob.login in str(row) or bob.key in str(row)]
        assert [row for row in theirs if row not in after[table]] == [], table
    assert find_subject(BOB).has_account


def test_trails_stay_and_verify_and_record_the_erasure_without_the_login(ann: Human) -> None:
    before = read_all("audit_entry")
    erased = erase(find_subject(ANN), "system")
    after = read_all("audit_entry")
    assert [row for row in before if row not in after] == []
    assert len(after) == len(before) + 3
    for tenant in (SECOND, FIRST, APPLIANCE):
        entry = entries(tenant)[0]
        assert (entry.action, entry.subject) == ("person.erase", ann.user_id)
        fields = json.loads(entry.fields)
        assert fields == {
            "delete": erased.count(Erasure.DELETE), "keep": erased.count(Erasure.KEEP),
            "pseudonymise": erased.count(Erasure.PSEUDONYMISE), "pseudonym": erased.pseudonym,
        }
        assert audit.verify(TenantScope(tenant, "system")).intact


def test_addresses_of_downloads_are_emptied(ann: Human) -> None:
    erased = erase(find_subject(ANN), "system")
    downloads = {row["person"]: (row["address"], row["agent"]) for row in read_all("document_download")}
    assert downloads[erased.pseudonym] == ("", "")
    assert all(downloads[BOB])


def test_the_only_owner_is_erased_only_if_that_is_allowed(ann: Human, bob: Human) -> None:
    accounts.disable_account(BOB)
    before = read_database()
    with pytest.raises(Conflict, match=r"ann@example\.com is the only owner of acme, globex"):
        erase(find_subject(ANN), "system")
    assert read_database() == before
    erase(find_subject(ANN), "system", may_leave_ownerless=True)
    assert rows_with(ANN, read_database()) == {"document_share"}


def test_a_deleted_account_can_be_erased_later(ann: Human) -> None:
    accounts.delete_account(ANN)
    assert "deleted_person" in rows_with(ANN, read_database())
    erase(find_subject(ANN), "system")
    assert rows_with(ANN, read_database()) == {"document_share"}


def test_erasing_a_deleted_account_leaves_the_successor_with_the_login_alone(ann: Human) -> None:
    accounts.delete_account(ANN)
    successor = people.create_user(ANN, PASSWORD)
    before = read_all("webapp_visit")
    erase(find_subject(ann.user_id), "system")
    assert people.find_user(ANN).id == successor.id
    assert [row for row in before if row["email"] == ANN and row not in read_all("webapp_visit")] == [
        row for row in before if row["email"] == ANN and ann.user_id in row["subject"]
    ]


def test_a_tenant_erases_its_visitors_and_no_account(ann: Human) -> None:
    erase(find_visitor(ANN), "user:usr_admin", tenant_id=FIRST)
    database = read_database()
    assert "email_code" not in rows_with(ANN, database)
    assert "document_download" not in rows_with(ANN, database)
    assert people.find_user(ANN).id == ann.user_id
    assert "approval_vote" in rows_with(ANN, database)
    assert entries(FIRST)[0].actor == "user:usr_admin"
    assert [each.kind.id for each in count_rows(find_visitor(ANN), FIRST)] == ["share-audiences"]
