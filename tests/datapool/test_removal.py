"""A deleted collection is gone at once, and its entities are removed in short writes, whoever is killed meanwhile."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.errors import AlreadyExists, Conflict, NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import entity_quota, removal
from appliance.datapool import service as datapool
from appliance.datapool.importing.reading import ImportOptions
from appliance.monitor import audit
from tests.backups.test_emptying import count_deleted

ENTITIES, MOST = 90, 30
MANY = ENTITIES // 3
"""How many orders each customer has, and each node has below it."""


@pytest.fixture
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    offset, now = [0], clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + offset[0])

    def move(by_ms: int) -> None:
        offset[0] += by_ms

    return move


@pytest.fixture(autouse=True)
def small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_writes, "MOST", MOST)
    monkeypatch.setattr(short_writes, "FEWEST", 10)


def fill(scope: TenantScope) -> list[str]:
    """Customers with many orders each; returns their ids."""
    customers = [str(datapool.create_entity(scope, "customers", {"code": f"c{number}"})["id"]) for number in range(3)]
    operations = [
        {"op": "create", "collection": "orders", "values": {"number": str(number), "customer": customers[number // MANY]}}
        for number in range(ENTITIES)
    ]
    datapool.run_batch(scope, operations)
    return customers


def query_all(scope: TenantScope, name: str) -> list[Any]:
    return list(datapool.query_entities(scope, name, {}).items)


def names(scope: TenantScope) -> list[str]:
    return [each["name"] for each in datapool.list_collections(scope, PageRequest()).items]


def table_of(scope: TenantScope, name: str) -> str:
    ((table,),) = db.rows("SELECT table_name FROM collection WHERE tenant_id = ? AND name = ?", (scope.tenant_id, name))
    return str(table)


def count(table: str, where: str = "1 = 1", *params: Any) -> int:
    return int(db.rows(f'SELECT count(*) FROM "{table}" WHERE {where}', params)[0][0])  # noqa: S608


def left_of(scope: TenantScope, table: str) -> tuple[int, int, int]:
    """The entities, changes and rows that are left of a collection; no entities if there is no table."""
    exists = table in db.database.obj.get_tables()
    changes = count("entity_change", "tenant_id = ? AND collection = ?", scope.tenant_id, table)
    return count(table) if exists else -1, changes, count("collection", "table_name = ?", table)


def remove_all() -> int:
    """As the periodic job does; returns the number of its calls."""
    calls = 0
    while removal.removal_due() is not None:
        removal.remove_deleted()
        calls += 1
        assert calls < 100
    return calls


def test_a_large_collection_is_gone_at_once_and_removed_in_short_writes(
    acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(acme)
    fill(globex)
    table, other = table_of(acme, "orders"), table_of(globex, "orders")
    datapool.delete_collection(acme, "orders", allow_loss=True)
    assert left_of(acme, table) == (ENTITIES, ENTITIES, 1), "the write that deletes it touches no entity"
    hidden = f"-{table}"
    for name in ("orders", hidden):
        for refused in (datapool.get_collection, datapool.delete_collection, query_all):
            with pytest.raises(NotFound):
                refused(acme, name)
    assert (names(acme), names(globex)) == (["customers"], ["customers", "orders"])
    sizes = count_deleted(monkeypatch)
    remove_all()
    assert (left_of(acme, table), left_of(globex, other)) == ((-1, 0, 0), (ENTITIES, ENTITIES, 1))
    assert (max(sizes), sum(sizes)) == (MOST, 2 * ENTITIES)
    trail = audit.list_entries(acme, audit.AuditFilter(action="collection.delete"), PageRequest()).items
    assert [(each.action, each.subject) for each in trail] == [("collection.delete", "orders")]
    assert removal.removal_due() is None


def test_its_name_is_free_at_once(acme: TenantScope) -> None:
    """For other fields as well; what is left of the old entities and their history is not seen in the new collection."""
    fill(acme)
    old = table_of(acme, "orders")
    datapool.delete_collection(acme, "orders", allow_loss=True)
    fields = [{"name": "number", "type": "text", "unique": True}, {"name": "parent", "type": "relation", "collection": "orders"}]
    datapool.create_collection(acme, {"name": "orders", "fields": fields})
    with pytest.raises(AlreadyExists):
        datapool.create_collection(acme, {"name": "orders", "fields": fields})
    entity = datapool.create_entity(acme, "orders", {"number": "1"})
    assert [each["id"] for each in datapool.query_entities(acme, "orders", {}).items] == [entity["id"]]
    datapool.delete_collection(acme, "customers", allow_loss=True)
    remove_all()
    assert (left_of(acme, old), names(acme)) == ((-1, 0, 0), ["orders"])
    assert datapool.get_entity(acme, "orders", entity["id"])["number"] == "1"
    assert len(datapool.list_entity_history(acme, "orders", str(entity["id"]), PageRequest()).items) == 1


def test_a_removal_that_is_killed_at_any_write_is_continued(
    acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch, moved_clock: Callable[[int], None]
) -> None:
    """Each process does one write and dies; the next one goes on once the lease of that is over."""
    fill(acme)
    fill(globex)
    table, write = table_of(acme, "orders"), db.write
    datapool.delete_collection(acme, "orders", allow_loss=True)
    seen: list[tuple[int, int, int]] = []

    def die_after(number: int) -> Callable[..., Any]:
        writes = iter(range(number))

        def once(fn: Any, **options: Any) -> Any:
            if not db.is_inside_write() and next(writes, None) is None:
                raise KeyboardInterrupt
            return write(fn, **options)

        return once

    while left_of(acme, table)[2]:
        with monkeypatch.context() as dying:
            dying.setattr(db, "write", die_after(2))  # the claim, and one more
            with pytest.raises(KeyboardInterrupt):
                removal.remove_deleted()
        seen.append(left_of(acme, table))
        removal.remove_deleted()
        assert left_of(acme, table) == seen[-1], "its lease is respected"
        moved_clock(removal.LEASE_MS)
        assert len(seen) < 50
        if left_of(acme, table)[:2] == (0, 0):
            remove_all()
    assert len({each[:2] for each in seen}) > 2 * ENTITIES // MOST
    assert seen == sorted(seen, reverse=True)
    assert (left_of(acme, table), count(table_of(globex, "orders"))) == ((-1, 0, 0), ENTITIES)


def test_what_it_refers_to_can_be_deleted_at_once(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before, when its entities were gone with it; one with very many of them only a moment later."""
    customers = fill(acme)
    table = table_of(acme, "orders")
    with pytest.raises(Conflict, match=r"still referenced by entities of orders\.customer"):
        datapool.delete_entity(acme, "customers", customers[0])
    datapool.delete_collection(acme, "orders", allow_loss=True)
    datapool.delete_entity(acme, "customers", customers[0])
    datapool.run_batch(acme, [{"op": "delete", "collection": "customers", "id": customers[1]}])
    if db.is_sqlite():
        monkeypatch.setattr(removal, "MOST_UNLINKED", MANY - 1)
        with pytest.raises(Conflict, match="referenced by many entities of a deleted collection, which are just being removed"):
            datapool.delete_entity(acme, "customers", customers[2])
    assert left_of(acme, table) == (ENTITIES, ENTITIES, 1)
    remove_all()
    datapool.delete_entity(acme, "customers", customers[2])
    assert datapool.query_entities(acme, "customers", {}).items == []


def test_an_entity_that_another_collection_refers_to_is_still_kept(acme: TenantScope) -> None:
    """The entities of a deleted collection give way, those of others do not."""
    customers = fill(acme)
    fields = [{"name": "customer", "type": "relation", "collection": "customers"}]
    datapool.create_collection(acme, {"name": "visits", "fields": fields})
    datapool.create_entity(acme, "visits", {"customer": customers[0]})
    datapool.delete_collection(acme, "orders", allow_loss=True)
    with pytest.raises(Conflict, match=r"still referenced by entities of visits\.customer"):
        datapool.delete_entity(acme, "customers", customers[0])
    with pytest.raises(Conflict, match=r"visits\.customer refer to the collection customers"):
        datapool.delete_collection(acme, "customers", allow_loss=True)


def test_collections_that_refer_to_each_other_are_removed_one_after_the_other(
    acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are deleted in one transaction, as by a solution; the smaller one is not dropped under the larger one."""
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    fill(acme)
    orders, customers = table_of(acme, "orders"), table_of(acme, "customers")

    def delete_both() -> None:
        for name in ("orders", "customers"):
            datapool.delete_collection(acme, name, allow_loss=True)

    db.write(delete_both)
    assert (names(acme), left_of(acme, customers)[0]) == ([], 3)
    removal.remove_deleted()
    assert (left_of(acme, orders), left_of(acme, customers)[0]) == ((-1, 0, 0), 3)
    remove_all()
    assert left_of(acme, customers) == (-1, 0, 0)


def test_entities_that_refer_to_each_other_are_removed(acme: TenantScope) -> None:
    datapool.create_collection(acme, {"name": "nodes", "fields": [{"name": "number", "type": "text"}]})
    relation = {"name": "parent", "type": "relation", "collection": "nodes"}
    datapool.change_collection(acme, "nodes", {"fields": [{"name": "number", "type": "text"}, relation]})
    table, parent = table_of(acme, "nodes"), None
    for number in range(ENTITIES):
        parent = datapool.create_entity(acme, "nodes", {"number": str(number), "parent": parent})["id"]
    datapool.delete_collection(acme, "nodes", allow_loss=True)
    remove_all()
    assert left_of(acme, table) == (-1, 0, 0)


def test_a_small_collection_is_deleted_by_one_write(acme: TenantScope) -> None:
    table = table_of(acme, "orders")
    for number in range(removal.SMALL):
        datapool.create_entity(acme, "orders", {"number": str(number)})
    datapool.delete_collection(acme, "orders", allow_loss=True)
    assert (left_of(acme, table), removal.removal_due()) == ((-1, 0, 0), None)


def test_one_process_at_a_time_removes_it(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(acme)
    table, remove = table_of(acme, "orders"), removal.remove_entities
    datapool.delete_collection(acme, "orders", allow_loss=True)
    inside: list[tuple[int, int, int]] = []

    def remove_beside_another(*args: Any) -> int:
        removal.remove_deleted()
        inside.append(left_of(acme, table))
        return remove(*args)

    monkeypatch.setattr(removal, "remove_entities", remove_beside_another)
    removal.remove_deleted()
    assert inside == [(ENTITIES, ENTITIES, 1)]


def test_nobody_removes_longer_than_a_turn(acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the collections of others have their turn."""
    for scope in (acme, globex):
        fill(scope)
    first, second = table_of(acme, "orders"), table_of(globex, "orders")
    for scope in (acme, globex):
        datapool.delete_collection(scope, "orders", allow_loss=True)
    monkeypatch.setattr(removal, "TURN_SECONDS", 0.0)
    removal.remove_deleted()
    assert [left_of(acme, first), left_of(globex, second)] == [(ENTITIES, ENTITIES, 1)] * 2
    monkeypatch.undo()
    remove_all()
    assert [left_of(acme, first), left_of(globex, second)] == [(-1, 0, 0)] * 2


@pytest.mark.parametrize("column", ["closed_at", "reset_at"])
def test_nothing_is_removed_of_a_tenant_that_is_emptied_or_imported(acme: TenantScope, column: str) -> None:
    fill(acme)
    table = table_of(acme, "orders")
    datapool.delete_collection(acme, "orders", allow_loss=True)
    db.write(lambda: db.execute(f"UPDATE tenant SET {column} = 1 WHERE id = 'acme'"))  # noqa: S608
    removal.remove_deleted()
    assert left_of(acme, table) == (ENTITIES, ENTITIES, 1)
    db.write(lambda: db.execute(f"UPDATE tenant SET {column} = NULL WHERE id = 'acme'"))  # noqa: S608
    remove_all()
    assert left_of(acme, table) == (-1, 0, 0)


def test_its_entities_count_in_no_quota_any_more(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_quota, "FRESH_SECONDS", 0.0)
    before = entity_quota.count_entities(acme)
    fill(acme)
    assert entity_quota.count_entities(acme) == before + 3 + ENTITIES
    datapool.delete_collection(acme, "orders", allow_loss=True)
    assert entity_quota.count_entities(acme) == before + 3


def test_an_import_into_it_fails_as_for_any_deleted_collection(acme: TenantScope) -> None:
    fill(acme)
    datapool.delete_collection(acme, "orders", allow_loss=True)
    with pytest.raises(NotFound):
        datapool.import_entities(acme, "orders", BytesIO(b"number\n1\n"), ImportOptions())
