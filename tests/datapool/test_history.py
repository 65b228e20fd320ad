"""Stored changes, for the history and for followers."""

import io

import pytest

from appliance.core import clock
from appliance.core.errors import InvalidCursor, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool


def test_the_history_of_an_entity_outlives_it(acme: TenantScope, globex: TenantScope) -> None:
    created = datapool.create_entity(acme, "orders", {"number": "1", "total": "5"})
    datapool.update_entity(acme, "orders", created["id"], {"total": "6"})
    datapool.update_entity(acme, "orders", created["id"], {"total": "6"})
    datapool.delete_entity(acme, "orders", created["id"])
    page = datapool.list_entity_history(acme, "orders", created["id"], PageRequest())
    assert [(c.event, c.version, c.entity["total"], c.actor) for c in page.items] == [
        ("deleted", 2, "6.00", "key:acme"),
        ("updated", 2, "6.00", "key:acme"),
        ("created", 1, "5.00", "key:acme"),
    ]
    for scope, entity_id in ((globex, created["id"]), (acme, created["id"][:-4] + "0000"), (acme, "\ud800")):
        with pytest.raises(NotFound):
            datapool.list_entity_history(scope, "orders", entity_id, PageRequest())


def test_a_long_history_comes_in_pages(acme: TenantScope) -> None:
    created = datapool.create_entity(acme, "orders", {"number": "1"})
    for total in range(4):
        datapool.update_entity(acme, "orders", created["id"], {"total": total})
    versions: list[int] = []
    cursor = None
    while True:
        page = datapool.list_entity_history(acme, "orders", created["id"], PageRequest(limit=2, cursor=cursor))
        versions += [change.version for change in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert versions == [5, 4, 3, 2, 1]
    with pytest.raises(InvalidCursor):
        datapool.list_entity_history(acme, "orders", created["id"], PageRequest(cursor="x"))


def test_followers_see_every_committed_change_once_and_in_order(acme: TenantScope, globex: TenantScope) -> None:
    start = datapool.get_last_change(acme, "orders")
    operations = [{"op": "create", "collection": "orders", "values": {"number": str(n)}} for n in range(3)]
    datapool.run_batch(acme, operations)
    datapool.run_batch(globex, operations)
    with pytest.raises(ValidationFailed):
        datapool.run_batch(acme, operations)
    datapool.run_batch(acme, [{"op": "create", "collection": "orders", "values": {"number": "9"}}], dry_run=True)
    datapool.import_entities(acme, "orders", io.BytesIO(b"number\n3\n3\n"), datapool.ImportOptions())
    changes = datapool.list_changes_after(acme, "orders", start)
    assert [change.entity["number"] for change in changes] == ["0", "1", "2", "3"]
    assert datapool.list_changes_after(acme, "orders", changes[1].number, 1) == [changes[2]]
    assert datapool.get_last_change(acme, "orders") == changes[-1].number


def test_old_changes_are_forgotten_and_a_deleted_collection_leaves_none(acme: TenantScope) -> None:
    datapool.create_entity(acme, "orders", {"number": "1"})
    datapool.create_entity(acme, "customers", {"code": "1"})
    assert datapool.delete_history_before(clock.now_ms() - 60_000) == 0
    datapool.delete_collection(acme, "orders", allow_loss=True)
    assert datapool.delete_history_before(clock.now_ms() + 1) == 1
    assert datapool.list_changes_after(acme, "customers", 0) == []
