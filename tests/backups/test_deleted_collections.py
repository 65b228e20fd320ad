"""What is left of deleted collections while their entities are removed: in exports, backups, moves and deletions of tenants."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backups import tenant_exports
from appliance.backups.copying import FileSource, create_schema, open_source
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import removal_due, remove_deleted
from appliance.datapool import service as datapool
from appliance.tenants import service
from tests.backups.conftest import World, make_world, restore
from tests.backups.test_emptying import count_rows, entity_tables
from tests.backups.test_moving import move
from tests.backups.test_transfer import export, import_copy
from tests.store.cluster import Cluster

LINES = 60


def delete_lines(scope: TenantScope) -> tuple[str, str]:
    """Delete a collection that refers to another and to itself, and create one of its name; the tables of both."""
    relation = {"name": "order", "type": "relation", "collection": "orders"}
    parent = {"name": "parent", "type": "relation", "collection": "lines"}
    datapool.change_collection(scope, "lines", {"fields": [relation, parent]})
    (order, *_) = datapool.query_entities(scope, "orders", {}).items
    above = None
    for _ in range(LINES):
        above = datapool.create_entity(scope, "lines", {"order": order["id"], "parent": above})["id"]
    old = table_of(scope)
    datapool.delete_collection(scope, "lines", allow_loss=True)
    datapool.create_collection(scope, {"name": "lines", "fields": [{"name": "text", "type": "text"}]})
    datapool.create_entity(scope, "lines", {"text": "new"})
    return old, table_of(scope)


def table_of(scope: TenantScope) -> str:
    ((table,),) = db.rows("SELECT table_name FROM collection WHERE tenant_id = ? AND name = 'lines'", (scope.tenant_id,))
    return str(table)


def check_removed(scope: TenantScope, old: str) -> None:
    """The rest is removed, and what has its name is as it was."""
    assert old in entity_tables()
    for _ in range(20):
        remove_deleted()
    assert (removal_due(), old in entity_tables()) == (None, False)
    assert db.rows("SELECT count(*) FROM entity_change WHERE collection = ?", (old,)) == [(0,)]
    assert [each["text"] for each in datapool.query_entities(scope, "lines", {}).items] == ["new"]
    assert len(datapool.query_entities(scope, "orders", {}).items) == 4


@pytest.fixture
def filled(tmp_path: Path, store_url: str) -> World:
    return make_world(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url)


def test_an_export_leaves_it_out(filled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    leave = tenant_exports._leave_deleted_collections

    def leave_and_look(file: sqlite3.Connection) -> None:
        leave(file)
        tables = [table for table in FileSource(file.execute).tables() if table.startswith("dp_")]
        left.extend([len(tables), file.execute("SELECT count(*) FROM collection").fetchone()[0]])

    monkeypatch.setattr(tenant_exports, "_leave_deleted_collections", leave_and_look)
    with filled.opened() as sealer:
        scope = filled.fill()
        old, _ = delete_lines(scope)
        path = export(filled, scope, tmp_path / "initech.gost")
        assert left == [2, 2]
        import_copy(filled, sealer, path, "copy")
        copied = service.system_scope("copy")
        assert datapool.query_entities(copied, "lines", {}).items[0]["text"] == "new"
        assert db.rows("SELECT count(*) FROM entity_change WHERE tenant_id = 'copy' AND collection = ?", (old,)) == [(0,)]
        assert db.rows("SELECT count(*) FROM collection WHERE tenant_id = 'copy'") == [(2,)]
        check_removed(scope, old)


def test_a_restored_appliance_goes_on_with_it(filled: World, tmp_path: Path) -> None:
    with filled.opened():
        scope = filled.fill()
        old, _ = delete_lines(scope)
        filled.backup(tmp_path / "whole.gosb")
    target = make_world(tmp_path / "restored")
    restore(tmp_path / "whole.gosb", target)
    with target.opened():
        check_removed(scope, old)


def test_an_appliance_that_moves_to_a_server_goes_on_with_it(tmp_path: Path, cluster: Cluster) -> None:
    source, target = make_world(tmp_path / "data"), make_world(tmp_path / "elsewhere", cluster.make_database())
    with source.opened():
        scope = source.fill()
        old, _ = delete_lines(scope)
    move(source, target)
    with target.opened():
        check_removed(scope, old)


def test_nothing_of_it_is_left_of_a_deleted_tenant(filled: World) -> None:
    with filled.opened():
        scope = filled.fill()
        others = len(entity_tables()) // 2
        delete_lines(scope)
        service.delete_tenant("initech")
        assert (count_rows("initech"), len(entity_tables()), removal_due()) == ({}, others, None)


def test_it_is_only_a_table_without_foreign_keys_in_a_copy(tmp_path: Path) -> None:
    """What it referred to by name may be another collection by then."""
    world = make_world(tmp_path / "data")
    with world.opened():
        scope = world.fill()
        old, new = delete_lines(scope)
        path = tmp_path / "copy.db"
        with closing(sqlite3.connect(path)) as file, db.snapshot():
            create_schema(file, open_source())
            assert file.execute(f"PRAGMA foreign_key_list({old})").fetchall() == []
            assert new in FileSource(file.execute).tables()
