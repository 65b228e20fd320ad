"""Entities that refer to each other, in a circle or in one collection, are deleted in short writes like all others."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.backups.emptying import empty_tables
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.database.bulk.short_writes import Permission
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.datapool import tables
from appliance.tenants import closed_tenants, service
from tests.backups.conftest import World, make_world

HEADS, MOST = 130, 30
Write = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two tenants; `initech` has circles over two collections, and a tree in a third."""
    monkeypatch.setattr(short_writes, "MOST", MOST)
    world = make_world(tmp_path / "data", "" if store_url.startswith("sqlite") else store_url)
    with world.opened():
        world.fill()
        add_circles(service.system_scope("initech"))
        yield world


def relation(name: str, collection: str) -> dict[str, Any]:
    return {"name": name, "type": "relation", "collection": collection}


def add_circles(scope: TenantScope) -> None:
    text = {"name": "number", "type": "text"}
    datapool.create_collection(scope, {"name": "heads", "fields": [text]})
    datapool.create_collection(scope, {"name": "tails", "fields": [text, {**relation("head", "heads"), "required": True}]})
    datapool.change_collection(scope, "heads", {"fields": [text, relation("tail", "tails")]})
    datapool.create_collection(scope, {"name": "nodes", "fields": [text]})
    datapool.change_collection(scope, "nodes", {"fields": [text, relation("parent", "nodes")]})
    parent = None
    for number in range(HEADS):
        head = datapool.create_entity(scope, "heads", {"number": str(number)})["id"]
        tail = datapool.create_entity(scope, "tails", {"number": str(number), "head": head})["id"]
        datapool.update_entity(scope, "heads", head, {"tail": tail})
        parent = datapool.create_entity(scope, "nodes", {"number": str(number), "parent": parent})["id"]


def entity_tables() -> list[str]:
    return sorted(name for name in db.database.obj.get_tables() if name.startswith("dp_"))


def count_entities(scope: TenantScope) -> int:
    names = [str(name) for (name,) in db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,))]
    return sum(int(db.rows(f'SELECT count(*) FROM "{name}"')[0][0]) for name in names)  # noqa: S608  names of our own


def watch_writes(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda _: None) -> list[int]:
    """The number of rows that each short write changes, as it goes on; `before` is called before each."""
    sizes: list[int] = []
    for name in ("delete_some", "change_some"):
        original = getattr(short_writes, name)

        def counted(*args: Any, original: Write = original) -> tuple[int, float]:
            before(len(sizes))
            changed, took = original(*args)
            sizes.append(changed)
            return changed, took

        monkeypatch.setattr(short_writes, name, counted)
    return sizes


def test_nothing_of_a_circle_is_left_for_the_last_write(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = service.system_scope("initech")
    left: list[int] = []
    drop = tables.drop_related_tables

    def count_and_drop(names: Any) -> None:
        listed = list(names)
        left.extend(int(db.rows(f'SELECT count(*) FROM "{name}"')[0][0]) for name in listed)  # noqa: S608  names of our own
        drop(listed)

    monkeypatch.setattr(tables, "drop_related_tables", count_and_drop)
    sizes, before = watch_writes(monkeypatch), count_entities(scope)
    assert before == 3 * HEADS + 8
    service.delete_tenant("initech")
    assert (left, max(sizes)) == ([0] * 5, MOST)
    assert len(entity_tables()) == 2, "those of the other tenant"


def test_a_deletion_that_is_killed_at_any_write_is_continued(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is the last one of a process, so that every state between two is one to go on from."""
    scope, deleted = service.system_scope("initech"), 0

    def stop(number: int) -> None:
        if number:
            raise KeyboardInterrupt

    monkeypatch.setattr(closed_tenants, "LEFT_MS", 0)
    before = count_entities(service.system_scope("hooli"))
    for _ in range(500):
        with monkeypatch.context() as patched:
            watch_writes(patched, stop)
            try:
                if deleted:
                    closed_tenants.delete_left()
                else:
                    service.delete_tenant("initech")
            except KeyboardInterrupt:
                deleted += 1
                continue
        break
    assert deleted > 3 * HEADS // MOST
    assert (service.list_closed(), count_entities(scope), len(entity_tables())) == ([], 0, 2)
    assert count_entities(service.system_scope("hooli")) == before


def test_nothing_is_changed_any_more_once_it_may_not_be(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another process has the reset: neither are rows deleted nor relations removed."""
    scope = service.system_scope("initech")
    before = {name: datapool.query_entities(scope, name, {"limit": 200}).items for name in ("heads", "tails", "nodes")}
    assert empty_tables(scope, (), Permission(lambda: False)) == 0
    assert {name: datapool.query_entities(scope, name, {"limit": 200}).items for name in before} == before


def test_the_rows_are_counted_once(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scope, recorded = service.system_scope("initech"), list[int]()
    before = count_entities(scope)
    deleted = empty_tables(scope, (), Permission(lambda: True, recorded.append))
    assert (deleted, recorded[-1], count_entities(scope)) == (before, before, 0)
    assert recorded == sorted(recorded)
    db.write(partial(datapool.drop_tenant_tables, scope))
