"""A tenant leaves with everything but its secrets, arrives as it was, and can be emptied."""

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import zstandard

from appliance.backups.copying import open_source
from appliance.backups.importing import ImportRequest, ImportResult, SecretReplacement
from appliance.backups.problems import BackupInvalid
from appliance.backups.resetting import PRESERVED, clear_tenant
from appliance.backups.tenant_exports import export_tenant
from appliance.backups.tenant_imports import import_tenant
from appliance.backups.tenant_tables import EXPORTED, NOT_EXPORTED, RENUMBERED
from appliance.core.crypto import Sealer
from appliance.core.database import db, full_text
from appliance.core.database.substrings import SubstringIndex
from appliance.core.errors import AlreadyExists
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents.models import DocumentRow
from appliance.monitor import audit
from appliance.tenants import ALL_SCOPES, appliance_scope, people, service
from appliance.tenants.grants import (
    ConfirmationRequest,
    SecretDestination,
    build_access_spec,
    confirmations,
    grants,
    secret_bindings,
)
from appliance.webapps.domains import name_ownership
from tests.backups.conftest import CANARY, World, make_world, rows_of

# What is given anew: numbers of the database, places, names of tables; the entry that tells of the import.
REGENERATED = {"blob": {"place", "touched_at"}, "collection": {"table_name", "stamp"}, "document": {"number"}}


def tenant_rows(tenant_id: str) -> dict[str, list[str]]:
    """The rows of the tenant in all exported tables and collections, without regenerated columns."""
    result = {}
    with db.snapshot():
        source = open_source()
        for table in source.tables():
            if table in EXPORTED and table not in ("audit_entry", "audit_chain"):
                columns = [
                    column
                    for column in source.columns(table)
                    if column not in {"tenant_id", RENUMBERED.get(table), *REGENERATED.get(table, ())}
                ]
                result[table] = rows_of(source, table, columns, "tenant_id = ?", tenant_id)
        for name, table in source.rows("SELECT name, table_name FROM collection WHERE tenant_id = ?", (tenant_id,)):
            result[f"entities of {name}"] = rows_of(source, str(table), source.columns(str(table)))
    return {name: rows for name, rows in result.items() if rows}


def add_rows(scope: TenantScope) -> None:
    """Add rows of many kinds beyond those of `World.fill`."""
    tenant = scope.tenant_id

    def write() -> None:
        for at in range(3):
            db.execute(
                "INSERT INTO log_line (tenant_id, at, level, source, message, fields) VALUES (?, ?, 20, 'x', ?, '{}')",
                (tenant, at, f"line {at}"),
            )
        audit.record(scope, "test.done", "something", {"n": 1})
        words = "UPDATE document_text SET words = 'the report of ' || tenant_id, state = 'done' WHERE tenant_id = ?"
        db.execute(words, (tenant,))
        for (number,) in db.rows("SELECT id FROM document_text WHERE tenant_id = ?", (tenant,)):
            full_text.add("document_text", number)

    db.write(write)


def export(world: World, scope: TenantScope, path: Path) -> Path:
    export_tenant(scope, world.places, path, None)
    return path


def import_copy(world: World, sealer: Sealer, path: Path, name: str | None = None) -> ImportResult:
    return import_tenant(world.places, SecretReplacement(sealer), ImportRequest(path, None, name), world.config.data)


@pytest.mark.parametrize(("from_kind", "to_kind"), [("sqlite", "sqlite"), ("postgresql", "sqlite"), ("sqlite", "postgresql")])
def test_an_imported_tenant_equals_the_exported_one(
    from_kind: str, to_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def url(kind: str) -> str:
        return "" if kind == "sqlite" else str(request.getfixturevalue("cluster").emptied())

    source = make_world(tmp_path / "data", url(from_kind))
    with source.opened():
        scope = source.fill()
        add_rows(scope)
        before = tenant_rows(scope.tenant_id)
        file = export(source, scope, tmp_path / "initech.gost")
    target = make_world(tmp_path / "elsewhere", url(to_kind))
    with target.opened() as sealer:
        done = import_copy(target, sealer, file)
        assert tenant_rows("initech") == before
        assert done.manifest["secrets"] == ["erp"]
        assert done.unknown_logins == ("ada",)
        imported_scope = service.system_scope("initech")
        row = imported_scope.select(DocumentRow).get()
        assert b"".join(target.blobs.read_checked(imported_scope, row.sha256)) == b"the text of initech" * 1000
        assert len(full_text.find_ids("document_text", ["report"], 0, 9)) == 1
        names = SubstringIndex("document", "number", "name")
        assert names.find_numbers(row.name, 9) == ([row.number] if to_kind == "sqlite" else None)
        new = datapool.create_entity(imported_scope, "orders", {"number": "another", "total": "1.00"})
        datapool.create_entity(imported_scope, "lines", {"order": new["id"]})
        assert audit.verify(imported_scope).intact


def test_a_broken_audit_trail_is_recorded_on_import(world: World, tmp_path: Path) -> None:
    with world.opened() as sealer:
        scope = world.fill()
        for number in range(3):
            db.write(partial(audit.record, scope, "test.done", "something", {"n": number}))
        db.write(lambda: db.execute("UPDATE audit_entry SET actor = 'nobody' WHERE tenant_id = ? AND seq = 2", ("initech",)))
        import_copy(world, sealer, export(world, scope, tmp_path / "initech.gost"), "copy")
        copy = service.system_scope("copy")
        (entry,) = audit.list_entries(copy, audit.AuditFilter(action="tenant.import"), PageRequest(10)).items
        document = json.loads(entry.fields)
        assert (document["trail_broken_at"], document["trail_broken"]) == (2, "its content was changed")
        assert audit.verify(copy).intact
        (of_appliance,) = audit.list_entries(appliance_scope(), audit.AuditFilter(action="tenant.import"), PageRequest(10)).items
        assert (of_appliance.subject, json.loads(of_appliance.fields)["from"]) == ("copy", "initech")


def test_an_export_is_imported_under_another_name(world: World, tmp_path: Path) -> None:
    with world.opened() as sealer:
        scope = world.fill()
        add_rows(scope)
        file = export(world, scope, tmp_path / "initech.gost")
        with pytest.raises(AlreadyExists, match="another id"):
            import_copy(world, sealer, file)
        before = tenant_rows("initech")
        assert import_copy(world, sealer, file, "copy").unknown_logins == ()
        assert tenant_rows("copy") == before == tenant_rows("initech")
        copy = service.system_scope("copy")
        assert audit.verify(copy).intact
        assert [member.login for member in people.list_members(copy)] == ["ada"]
        datapool.create_entity(copy, "orders", {"number": "only in the copy", "total": "1.00"})
        assert tenant_rows("initech") == before
        service.delete_tenant("copy")
        assert tenant_rows("initech") == before


def test_secrets_are_not_exported(world: World, tmp_path: Path) -> None:
    with world.opened() as sealer:
        scope = world.fill()
        sealed = [bytes(row[0]) for row in db.rows("SELECT sealed FROM secret")]
        file = export(world, scope, tmp_path / "initech.gost")
        with file.open("rb") as compressed:
            content = zstandard.ZstdDecompressor().stream_reader(compressed).read()
        assert b"the text of initech" in content
        assert [each for each in (CANARY.encode(), *sealed, b"hooli") if each in content] == []
        assert import_copy(world, sealer, file, "copy").manifest["secrets"] == ["erp"]
        assert service.list_secrets(service.system_scope("copy")) == []


def test_a_damaged_export_leaves_no_tenant(world: World, tmp_path: Path) -> None:
    with world.opened() as sealer:
        content = export(world, world.fill(), tmp_path / "initech.gost").read_bytes()
        damaged = tmp_path / "damaged.gost"
        for each in (content[:-40], content[: len(content) // 2], content[:9000] + bytes([content[9000] ^ 1]) + content[9001:]):
            damaged.write_bytes(each)
            with pytest.raises(BackupInvalid):
                import_copy(world, sealer, damaged, "copy")
        assert [tenant.id for tenant in service.list_tenants()] == ["hooli", "initech"]


def test_running_work_ends_on_import(world: World, tmp_path: Path) -> None:
    with world.opened() as sealer:
        scope = world.fill()
        db.write(lambda: _insert_running_rows(scope.tenant_id))
        done = import_copy(world, sealer, export(world, scope, tmp_path / "initech.gost"), "copy")
        sql = "SELECT status, owner, error FROM execution WHERE tenant_id = ?"
        ((status, owner, error),) = db.rows(sql, ("copy",))
        assert (status, owner) == ("cancelled", None)
        assert "imported" in json.loads(error)["message"]
        assert db.rows(sql, ("initech",))[0][:2] == ("running", "wrk_1")
        assert done.paused == 1
        assert db.rows("SELECT count(*) FROM process WHERE paused_at IS NULL") == [(1,)]


def _insert_running_rows(tenant: str) -> None:
    db.execute(
        "INSERT INTO process (tenant_id, id, name, definition, files, draft_digest, created_at, updated_at) "
        "VALUES (?, 'p', 'P', '{}', '{}', '', 0, 0)",
        (tenant,),
    )
    db.execute(
        "INSERT INTO trigger_state (tenant_id, process_id, trigger_id, position, kind, settings, digest, failed_in_row, "
        "created_at) VALUES (?, 'p', 't', 0, 'schedule', '{}', '', 0, 0)",
        (tenant,),
    )
    db.execute(
        "INSERT INTO execution (tenant_id, id, process_id, version, status, input, priority, created_at, enqueued_at, active_ms, "
        "owner, lease_until, fence, claims, cancel_requested, actor, request_id) "
        "VALUES (?, 'exe_1', 'p', 1, 'running', '{}', 0, 0, 0, 0, 'wrk_1', 0, 1, 1, 0, 'system', '')",
        (tenant,),
    )


def test_every_tenant_table_is_classified(world: World) -> None:
    """A new table must be put into `tenant_tables`: it leaves with an export, or is left for a reason."""
    with world.opened(), db.snapshot():
        source = open_source()
        own = {table for table in source.tables() if "tenant_id" in source.columns(table)}
        assert own == EXPORTED.keys() | NOT_EXPORTED.keys()
        assert EXPORTED.keys() & NOT_EXPORTED.keys() == set()
        for table, instead in EXPORTED.items():
            columns = set(source.columns(table))
            assert instead.keys() <= columns
            assert {column for column in columns if column.startswith("sealed")} <= instead.keys()
            assert (RENUMBERED.get(table) in columns) == (table in RENUMBERED)
    with closing(sqlite3.connect(world.config.data / "gos.db")) as own_file:
        autoincrement_tables = {
            row[0] for row in own_file.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
        }
    assert autoincrement_tables & EXPORTED.keys() == RENUMBERED.keys()


def test_a_reset_tenant_keeps_revocations_and_no_grants(world: World) -> None:
    with world.opened():
        scope = world.fill()
        allowed, revoked = build_access_spec({"datapool": {"orders": ["read"]}}), build_access_spec({"documents": ["read"]})
        owner = TenantScope(scope.tenant_id, f"user:{people.find_user('ada').id}", ALL_SCOPES)
        erp = SecretDestination("integration", "erp", hosts="erp.example.com")

        def fill() -> None:
            grants.give_grant(scope, "process:orders", allowed)
            grants.give_grant(scope, "process:orders", revoked)
            grants.withdraw_grant(owner, "process:orders", revoked.digest)
            secret_bindings.bind(scope, "erp", erp)
            for kind in confirmations.KINDS:
                confirmations.request_confirmation(scope, ConfirmationRequest(kind, "orders", "d", {"reach": allowed.document}))

        db.write(fill)
        clear_tenant(scope)
        assert [grant.digest for grant in grants.list_grants(scope, "process:orders")] == [revoked.digest]
        assert [each.kind for each in confirmations.list_open(scope)] == ["key"]
        assert secret_bindings.find_unbound(scope, ["erp"], erp) == ["erp"]


def test_a_reset_tenant_keeps_members_secrets_and_released_names(world: World) -> None:
    with world.opened():
        scope = world.fill()
        other = tenant_rows("hooli")
        db.write(lambda: name_ownership.add_tombstone("given-up.example.com", scope.tenant_id))
        assert clear_tenant(scope) > 0
        name_ownership.check_available(scope, ["given-up.example.com"])
        with pytest.raises(AlreadyExists):
            name_ownership.check_available(service.system_scope("hooli"), ["given-up.example.com"])
        assert tenant_rows("initech").keys() <= {"blob"}, "contents that nothing uses go by themselves"
        assert tenant_rows("hooli") == other
        assert [row.name for row in service.list_secrets(scope)] == ["erp"]
        assert [member.login for member in people.list_members(scope)] == ["ada"]
        actions = [entry.action for entry in audit.list_entries(scope, audit.AuditFilter(), PageRequest(10)).items]
        assert actions[0] == "tenant.reset"
        assert "secret.set" in actions
        assert EXPORTED.keys() | NOT_EXPORTED.keys() >= PRESERVED
        datapool.create_collection(scope, {"name": "orders", "fields": [{"name": "number", "type": "text"}]})
