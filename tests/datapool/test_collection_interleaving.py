"""Two changes of collections, and changes beside entities that are written, end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool import FileImport, ImportOptions, Requester
from appliance.datapool import access as access_verbs
from appliance.datapool import service as datapool
from appliance.datapool.importing import records
from appliance.tenants import service as tenants
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.store.opening import open_migrated

TEXT, OTHER = {"name": "code", "type": "text"}, {"name": "other", "type": "text"}
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def scope(cluster: Cluster) -> Iterator[TenantScope]:
    open_migrated(cluster.emptied())
    tenants.create_tenant("acme", "Acme")
    yield tenants.system_scope("acme", "key:test")
    db.close_database()


def add(of: TenantScope, *fields: dict[str, Any], **options: Any) -> str:
    name = f"c{next(numbers)}"
    datapool.create_collection(of, {"name": name, "fields": [*(fields or (TEXT,))], **options})
    return name


def read(of: TenantScope, *names: str) -> Any:
    """Of each collection its version and fields, and of its entities the values."""
    result = []
    for name in names:
        rows = db.rows("SELECT version FROM collection WHERE tenant_id = 'acme' AND name = ?", (name,))
        entities = datapool.query_entities(of, name, {}).items if rows else []
        values = [{key: str(value) for key, value in each.items() if key in ("code", "other", "more")} for each in entities]
        result.append((rows, sorted(map(repr, values))))
    return result


def create(of: TenantScope, name: str, **values: Any) -> Any:
    return datapool.create_entity(of, name, values)


def change(of: TenantScope, name: str, *fields: dict[str, Any], **options: Any) -> Any:
    return datapool.change_collection(of, name, {"fields": list(fields)}, **options)


def two_collections_of_one_name(of: TenantScope) -> Pair:
    name = f"c{next(numbers)}"
    return Pair.of((partial(datapool.create_collection, of, {"name": name, "fields": [TEXT]}),) * 2, partial(read, of, name))


def two_fields_are_added_to_a_version(of: TenantScope) -> Pair:
    name = add(of)
    return Pair.of((partial(change, of, name, TEXT, OTHER, if_version=1),) * 2, partial(read, of, name))


def a_field_becomes_required_beside_a_new_entity(of: TenantScope) -> Pair:
    name = add(of, TEXT, OTHER)
    return Pair(
        lambda: change(of, name, {**TEXT, "required": True}, OTHER), lambda: create(of, name, other="x"), partial(read, of, name)
    )


def a_field_becomes_unique_beside_a_new_entity(of: TenantScope) -> Pair:
    name = add(of)
    create(of, name, code="a")
    return Pair(
        lambda: change(of, name, {**TEXT, "unique": True}), lambda: create(of, name, code="a"), partial(read, of, name)
    )


def a_field_becomes_a_number_beside_a_change(of: TenantScope) -> Pair:
    name = add(of)
    entity = create(of, name, code="1")["id"]
    return Pair(
        lambda: change(of, name, {**TEXT, "type": "integer"}),
        lambda: datapool.update_entity(of, name, entity, {"code": "x"}),
        partial(read, of, name),
    )


def a_collection_is_deleted_beside_a_new_entity(of: TenantScope) -> Pair:
    name = add(of)
    return Pair(lambda: datapool.delete_collection(of, name), lambda: create(of, name, code="a"), partial(read, of, name))


def a_collection_is_deleted_with_all_beside_a_batch(of: TenantScope) -> Pair:
    name, other = add(of), add(of)
    operations = [{"op": "create", "collection": each, "values": {"code": "a"}} for each in (other, name)]
    return Pair(
        lambda: datapool.delete_collection(of, name, allow_loss=True),
        lambda: datapool.run_batch(of, operations),
        partial(read, of, name, other),
        may_refuse=("NotFound",),
    )


def a_collection_is_deleted_and_referred_to(of: TenantScope) -> Pair:
    name = add(of)
    user = f"c{next(numbers)}"
    relation = {"name": "item", "type": "relation", "collection": name}
    return Pair(
        lambda: datapool.delete_collection(of, name),
        lambda: datapool.create_collection(of, {"name": user, "fields": [relation]}),
        partial(read, of, name, user),
    )


def a_collection_is_made_again_beside_a_new_entity(of: TenantScope) -> Pair:
    name = add(of)

    def make_again() -> None:
        datapool.delete_collection(of, name, allow_loss=True)
        datapool.create_collection(of, {"name": name, "fields": [TEXT, OTHER]})

    def read_all() -> Any:
        left = "SELECT count(*) FROM entity_change WHERE collection NOT IN (SELECT table_name FROM collection)"
        return read(of, name), db.rows(left)

    return Pair(lambda: create(of, name, code="a"), make_again, read_all, may_refuse=("NotFound",))


def an_access_rule_changes_beside_a_visitor(of: TenantScope) -> Pair:
    name = add(of, access={"create": "allow", "view": "allow"})
    visitor = Requester(app="shop", method="POST")
    return Pair(
        lambda: access_verbs.create_allowed(of, visitor, name, {"code": "a"}),
        lambda: datapool.change_collection(of, name, {"access": {"create": "deny"}}),
        partial(read, of, name),
    )


def new_entities_are_upserted_in_a_batch(of: TenantScope) -> Pair:
    name = add(of)
    batch = [{"op": "upsert", "collection": name, "key": ["code"], "values": {"code": code}} for code in "ab"]
    return Pair(
        lambda: datapool.run_batch(of, batch),
        lambda: datapool.upsert_entity(of, name, {"key": ["code"], "values": {"code": "b"}}),
        partial(read, of, name),
    )


def an_entity_is_replaced_and_updated(of: TenantScope) -> Pair:
    name = add(of, TEXT, OTHER)
    entity = create(of, name, code="a", other="b")["id"]
    return Pair(
        lambda: datapool.replace_entity(of, name, entity, {"code": "c"}),
        lambda: datapool.update_entity(of, name, entity, {"other": "d"}),
        partial(read, of, name),
    )


def an_entity_is_deleted_and_upserted_by_what_is_unique(of: TenantScope) -> Pair:
    name = add(of, {**TEXT, "unique": True}, OTHER)
    entity = create(of, name, code="a")["id"]
    return Pair(
        lambda: datapool.replace_entity(of, name, entity, {"code": "b"}),
        lambda: datapool.upsert_entity(of, name, {"key": ["code"], "values": {"code": "a", "other": "x"}}),
        partial(read, of, name),
    )


def new_import(of: TenantScope) -> str:
    file_import = FileImport(
        f"imp{next(numbers)}", "acme", of.actor, add(of), "a.csv", None, "csv", ",", "utf-8", ["code"], [], "tried",
        ImportOptions(), None, "", clock.now_ms(),
    )  # fmt: skip
    digest = f"{next(numbers):064}"
    blob = "INSERT INTO blob (tenant_id, sha256, size, place, touched_at) VALUES ('acme', ?, 1, ?, 1)"

    def insert() -> str:
        db.execute(blob, (digest, digest))
        records.insert(of, replace(file_import, sha256=digest))
        return file_import.id

    return db.write(insert)


def read_import(import_id: str) -> Any:
    return db.rows("SELECT state, owner IS NULL, fence FROM file_import WHERE id = ?", (import_id,))


def start(of: TenantScope, import_id: str, owner: str, options: ImportOptions | None = None) -> Any:
    return db.write(lambda: records.start(of, import_id, options, owner))


def an_import_is_started_twice(of: TenantScope) -> Pair:
    file = new_import(of)
    return Pair.of((partial(start, of, file, owner) for owner in "ab"), partial(read_import, file))


def an_import_is_started_and_checked_again(of: TenantScope) -> Pair:
    file = new_import(of)
    return Pair(lambda: start(of, file, "a"), lambda: start(of, file, "b", ImportOptions()), partial(read_import, file))


PAIRS: dict[str, Callable[[TenantScope], Pair]] = {
    each.__name__: each
    for each in (
        two_collections_of_one_name, two_fields_are_added_to_a_version, a_field_becomes_required_beside_a_new_entity,
        a_field_becomes_unique_beside_a_new_entity, a_field_becomes_a_number_beside_a_change,
        a_collection_is_deleted_beside_a_new_entity, a_collection_is_deleted_with_all_beside_a_batch,
        a_collection_is_deleted_and_referred_to, a_collection_is_made_again_beside_a_new_entity,
        an_access_rule_changes_beside_a_visitor, new_entities_are_upserted_in_a_batch, an_entity_is_replaced_and_updated,
        an_entity_is_deleted_and_upserted_by_what_is_unique, an_import_is_started_twice, an_import_is_started_and_checked_again,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(scope: TenantScope, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](scope), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_two_entities_are_upserted(scope: TenantScope) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: new_entities_are_upserted_in_a_batch(scope))
