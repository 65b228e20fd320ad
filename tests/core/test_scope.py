"""Tenant rows are reached through a scope, and a scope reaches its own tenant's rows only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import peewee
import pytest

from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import NotFound, ScopeMissing, UnscopedQuery
from appliance.core.scope import TenantScope
from appliance.tenants.models import Secret

ROW: dict[str, Any] = {"name": "token", "sealed": b"x", "updated_at": 1}
SIDE_DOORS: dict[str, Callable[[], Any]] = {
    "select": Secret.select,
    "filter": lambda: Secret.filter(name="token"),
    "noop": Secret.noop,
    "get": lambda: Secret.get(Secret.name == "token"),
    "get_or_none": lambda: Secret.get_or_none(Secret.name == "token"),
    "get_by_id": lambda: Secret.get_by_id(("one", "token")),
    "index": lambda: cast(Any, Secret)[("one", "token")],
    "iterate": lambda: list(iter(cast(Any, Secret))),
    "length": lambda: len(cast(Any, Secret)),
    "contains": lambda: ("one", "token") in cast(Any, Secret),
    "create": lambda: Secret.create(tenant_id="one", **ROW),
    "get_or_create": lambda: Secret.get_or_create(tenant_id="one", defaults=ROW),
    "insert": lambda: Secret.insert(tenant_id="one", **ROW),
    "insert_many": lambda: Secret.insert_many([ROW]),
    "insert_from": lambda: Secret.insert_from(None, [Secret.name]),
    "replace": lambda: Secret.replace(tenant_id="one", **ROW),
    "replace_many": lambda: Secret.replace_many([ROW]),
    "bulk_create": lambda: Secret.bulk_create([Secret(tenant_id="one", **ROW)]),
    "bulk_update": lambda: Secret.bulk_update([Secret(tenant_id="one", **ROW)], [Secret.updated_at]),
    "set_by_id": lambda: Secret.set_by_id(("one", "token"), {"updated_at": 2}),
    "set item": lambda: Secret.__setitem__(("one", "token"), {"updated_at": 2}),
    "update": lambda: Secret.update(updated_at=2),
    "save": lambda: Secret(tenant_id="one", **ROW).save(),
    "save new": lambda: Secret(tenant_id="one", **ROW).save(force_insert=True),
    "delete": Secret.delete,
    "delete_by_id": lambda: Secret.delete_by_id(("one", "token")),
    "delete item": lambda: Secret.__delitem__(("one", "token")),
    "delete_instance": lambda: Secret(tenant_id="one", **ROW).delete_instance(),
    "truncate_table": Secret.truncate_table,
    "drop_table": Secret.drop_table,
    "create_table": Secret.create_table,
    "raw": lambda: Secret.raw("SELECT 1"),
    "alias": Secret.alias,
}


@pytest.fixture
def one(database: Path) -> TenantScope:
    for tenant in ("one", "two"):
        sql = "INSERT INTO tenant (id, name, kind, created_at) VALUES (?, ?, 'standard', 0)"
        db.write(lambda tenant=tenant, sql=sql: db.execute(sql, (tenant, tenant)))  # type: ignore[misc]
    return TenantScope("one", "system")


@pytest.fixture
def two(one: TenantScope) -> TenantScope:
    return TenantScope("two", "system")


@pytest.mark.parametrize("door", SIDE_DOORS)
def test_tenant_rows_cannot_be_accessed_without_a_scope(one: TenantScope, door: str) -> None:
    db.write(lambda: one.insert(Secret, **ROW))
    with pytest.raises(UnscopedQuery, match="go through a TenantScope"):
        db.write(SIDE_DOORS[door])
    assert one.find(Secret, name="token") is not None


def test_a_scope_reads_and_changes_its_own_rows_only(one: TenantScope, two: TenantScope) -> None:
    db.write(lambda: one.insert(Secret, **ROW))
    db.write(lambda: two.insert(Secret, **ROW, tenant_id="one"))  # the scope's tenant wins
    assert [row.tenant_id for row in one.select(Secret)] == ["one"]
    assert [row.tenant_id for row in two.select(Secret)] == ["two"]
    assert db.write(lambda: one.update(Secret, updated_at=5).execute()) == 1
    assert (one.get(Secret, name="token").updated_at, two.get(Secret, name="token").updated_at) == (5, 1)
    assert db.write(lambda: one.delete(Secret).execute()) == 1
    assert (one.find(Secret, name="token"), two.find(Secret, name="token") is None) == (None, False)


def test_a_foreign_row_is_refused_like_an_unknown_one(one: TenantScope, two: TenantScope) -> None:
    db.write(lambda: one.insert(Secret, **ROW))
    with pytest.raises(NotFound) as foreign:
        two.get(Secret, name="token")
    db.write(lambda: one.delete(Secret).execute())
    with pytest.raises(NotFound) as unknown:
        two.get(Secret, name="token")
    assert foreign.value.message == unknown.value.message == "there is no secret 'token' here"


def test_a_row_needs_its_tenant(one: TenantScope) -> None:
    with pytest.raises(peewee.IntegrityError):
        db.write(lambda: TenantScope("nobody", "system").insert(Secret, **ROW))


def test_scopes_are_required_by_name() -> None:
    scope = TenantScope("one", "key:key_1", frozenset({"logs.read"}))
    scope.require("logs.read")
    with pytest.raises(ScopeMissing, match=r"needs the scope keys\.read") as refusal:
        scope.require("keys.read")
    assert refusal.value.extra == {"scope": "keys.read"}


def test_with_actor_changes_only_the_actor() -> None:
    scope = TenantScope("one", "key:key_1", frozenset({"logs.read"}), "req_1")
    assert scope.with_actor("execution:exe_1") == TenantScope("one", "execution:exe_1", frozenset({"logs.read"}), "req_1")


class Parcel(TenantModel):
    """One of every kind of column that our tables have."""

    id = peewee.TextField()
    label_text = peewee.TextField(null=True, column_name="label")
    contents = db.JsonField(null=True)
    is_open = peewee.BooleanField()
    sent_at = peewee.BigIntegerField(null=True)
    sealed = peewee.BlobField()

    class Meta:
        primary_key = peewee.CompositeKey("tenant_id", "id")


def test_find_returns_the_row_that_a_select_returns(one: TenantScope, two: TenantScope) -> None:
    columns = "tenant_id TEXT, id TEXT, label TEXT, contents TEXT, is_open INTEGER, sent_at BIGINT, sealed BLOB"
    values = {"id": "p", "label_text": "fragile", "contents": {"a": [1]}, "is_open": True, "sealed": b"x"}
    db.write(lambda: db.execute(f"CREATE TABLE parcel ({columns})"))
    for scope in (two, one):
        db.write(lambda scope=scope: scope.insert(Parcel, **values))  # type: ignore[misc]
    row = one.find(Parcel, id="p", is_open=True, contents={"a": [1]}, sent_at=None)
    assert row is not None
    assert row.__data__ == one.select(Parcel).get().__data__ == {"tenant_id": "one", "sent_at": None, **values}
    assert not row.dirty_fields
    assert one.find(Parcel, id="p", sent_at=1) is None
    assert one.find(Parcel, id="p", label_text=None) is None
