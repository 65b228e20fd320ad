"""The storage used by entities and their history, counted on both databases."""

from collections.abc import Iterator

import pytest

from appliance.blobs import quota
from appliance.core.database import db
from appliance.core.errors import StorageFull
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope, tenant_ids
from appliance.datapool import service as datapool
from appliance.datapool import storage
from appliance.datapool.storage import StorageUsage

TEXT = "é" * 5_000  # ten thousand bytes
ORDER = {
    "number": "1", "total": "9.95", "weight": 1.5, "paid": True, "day": "2026-01-02", "shipped": "2026-01-02T03:04:05Z",
    "state": "new", "contact": "ann@firma.example", "page": "https://firma.example/", "extra": {"text": TEXT},
}  # fmt: skip


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(storage, "RECOUNT_PAUSE_FACTOR", 0)
    monkeypatch.setattr(quota, "_rows", {})
    yield
    quota.configure(tenant_bytes=0)


def test_every_kind_of_value_is_counted_as_itself_and_in_the_history(acme: TenantScope, globex: TenantScope) -> None:
    count = StorageUsage()
    count.update()
    before = quota.row_bytes("acme")
    order = datapool.create_entity(acme, "orders", ORDER)
    at_once = quota.row_bytes("acme") - before
    assert 20_000 <= at_once < 22_000
    StorageUsage().update()  # recounts from the database
    assert 20_000 <= quota.row_bytes("acme") - before <= at_once
    datapool.update_entity(acme, "orders", order["id"], {"quantity": 2})
    assert 30_000 <= quota.row_bytes("acme") - before < 33_000, "the history contains the previous entity"
    datapool.delete_entity(acme, "orders", order["id"])
    StorageUsage().update()
    assert 30_000 <= quota.row_bytes("acme") - before < 33_000, "the history of a deleted entity stays"
    assert quota.row_bytes("globex") < 10_000


def test_changes_of_other_processes_are_added(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count = StorageUsage()
    count.update()
    before = quota.row_bytes("acme")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(quota, "add_rows", lambda scope, size: None)
        datapool.create_entity(acme, "orders", ORDER)
    assert quota.row_bytes("acme") == before
    count.update()
    assert 20_000 <= quota.row_bytes("acme") - before < 22_000
    count.update()
    assert 20_000 <= quota.row_bytes("acme") - before < 22_000, "each change is added once"


def test_a_rolled_back_change_is_not_counted(acme: TenantScope) -> None:
    count = StorageUsage()
    count.update()
    before = quota.row_bytes("acme")

    def create_and_fail() -> None:
        datapool.create_entity(acme, "orders", ORDER)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        db.write(create_and_fail)
    count.update()
    assert quota.row_bytes("acme") == before


def test_a_full_tenant_changes_nothing_and_may_delete(acme: TenantScope, globex: TenantScope) -> None:
    order = datapool.create_entity(acme, "orders", ORDER)
    StorageUsage().update()
    quota.configure(tenant_bytes=quota.used_bytes(acme))
    with pytest.raises(StorageFull, match="entities with their history"):
        datapool.create_entity(acme, "orders", ORDER | {"number": "2"})
    with pytest.raises(StorageFull):
        datapool.upsert_entity(acme, "orders", {"key": ["number"], "values": ORDER | {"total": "1"}})
    with pytest.raises(StorageFull):
        datapool.run_batch(acme, [{"op": "create", "collection": "customers", "values": {"code": "a"}}])
    datapool.create_entity(globex, "customers", {"code": "a"})
    datapool.run_batch(acme, [{"op": "delete", "collection": "orders", "id": order["id"]}])
    assert datapool.query_entities(acme, "orders", {}).items == []


def test_deleting_a_collection_frees_its_storage(acme: TenantScope) -> None:
    datapool.create_entity(acme, "orders", ORDER)
    count = StorageUsage()
    count.update()
    full = quota.row_bytes("acme")
    datapool.delete_collection(acme, "orders", allow_loss=True)
    count.update()
    assert quota.row_bytes("acme") <= full - 20_000
    assert [each["name"] for each in datapool.list_collections(acme, PageRequest()).items] == ["customers"]


def test_a_deleted_tenant_is_forgotten(acme: TenantScope) -> None:
    count = StorageUsage()
    count.update()
    db.write(lambda: quota.add_rows(TenantScope("gone", "key:gone"), 5))
    count.update()
    assert set(quota._rows) == set(tenant_ids())
