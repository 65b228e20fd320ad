"""Two changes of entities at once end as if one had followed the other, wherever one comes in the middle of the other."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.tenants import service as tenants
from tests.store.cluster import Cluster
from tests.store.interleaving import Ends, Step, interleave
from tests.store.opening import open_migrated

GOODS = {
    "name": "goods",
    "fields": [
        {"name": "code", "type": "text", "unique": True},
        {"name": "name", "type": "text"},
        {"name": "price", "type": "integer"},
        {"name": "extra", "type": "json"},
    ],
}
ORDERS = {"name": "orders", "fields": [{"name": "item", "type": "relation", "collection": "goods"}]}
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    """The URL of the open database."""
    url = cluster.emptied()
    open_migrated(url)
    yield url
    db.close_database()


@pytest.fixture(scope="module")
def scope(url: str) -> TenantScope:
    tenants.create_tenant("acme", "Acme")
    scope = tenants.system_scope("acme", "key:test")
    datapool.create_collection(scope, GOODS)
    datapool.create_collection(scope, ORDERS)
    return scope


def new_code() -> str:
    return f"c{next(numbers)}"


def make(scope: TenantScope, **values: Any) -> str:
    return str(datapool.create_entity(scope, "goods", {"code": new_code(), **values})["id"])


def read(scope: TenantScope, entity_id: str) -> dict[str, Any] | None:
    try:
        return datapool.get_entity(scope, "goods", entity_id)
    except NotFound:
        return None


def find(scope: TenantScope, **values: Any) -> list[dict[str, Any]]:
    conditions = {name: {"_eq": value} for name, value in values.items()}
    return list(datapool.query_entities(scope, "goods", {"filter": conditions}).items)


def check_history(scope: TenantScope, entity_id: str) -> None:
    """Every version is in the history once, in the order of its numbers."""
    changes = datapool.list_entity_history(scope, "goods", entity_id, PageRequest(100)).items[::-1]
    versions = [change.version for change in changes if change.event != "deleted"]
    assert versions == list(range(1, len(versions) + 1))
    entity = read(scope, entity_id)
    last = changes[-1]
    assert (last.event == "deleted") == (entity is None)
    assert entity is None or last.entity == entity


def test_changes_of_different_fields_are_both_kept(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"] = make(scope, extra={"a": 1})
        return (
            lambda: datapool.update_entity(scope, "goods", at["id"], {"name": "new", "extra": {"b": 2}}),
            lambda: datapool.update_entity(scope, "goods", at["id"], {"price": 7, "extra": {"c": 3}}),
        )

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        entity = read(scope, at["id"])
        assert entity is not None
        assert (entity["name"], entity["price"], entity["extra"]) == ("new", 7, {"a": 1, "b": 2, "c": 3})
        assert entity["_version"] == 3
        check_history(scope, at["id"])

    assert interleave(begin, judge) > 8


def test_without_its_row_lock_a_change_is_lost(
    scope: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness finds it when the lock of a verb is taken out."""
    monkeypatch.setattr(db, "row_lock", lambda: "")
    with pytest.raises(AssertionError, match="was halted before"):
        test_changes_of_different_fields_are_both_kept(scope)


def test_of_two_changes_of_one_version_one_is_refused(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"] = make(scope, price=1)
        return tuple(  # type: ignore[return-value]
            lambda price=price: datapool.update_entity(scope, "goods", at["id"], {"price": price}, if_version=1) for price in (2, 3)
        )

    def judge(ends: Ends) -> None:
        assert ends.errors == ["VersionConflict"]
        assert read(scope, at["id"]) == ends.values[0]
        check_history(scope, at["id"])

    interleave(begin, judge)


def test_a_deleted_entity_stays_deleted(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"] = make(scope)
        return (
            lambda: datapool.update_entity(scope, "goods", at["id"], {"price": 7}),
            lambda: datapool.delete_entity(scope, "goods", at["id"]),
        )

    def judge(ends: Ends) -> None:
        assert ends.errors in ([], ["NotFound"])
        assert not isinstance(ends.results[1], Exception), "the deletion has no reason to fail"
        assert read(scope, at["id"]) is None
        check_history(scope, at["id"])

    interleave(begin, judge)


def test_of_two_deletions_one_finds_nothing(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"] = make(scope)
        return (lambda: datapool.delete_entity(scope, "goods", at["id"]), lambda: datapool.delete_entity(scope, "goods", at["id"]))

    def judge(ends: Ends) -> None:
        assert ends.errors == ["NotFound"]
        check_history(scope, at["id"])

    interleave(begin, judge)


def test_a_unique_value_is_given_once(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["code"], other = new_code(), make(scope)
        return (
            lambda: datapool.create_entity(scope, "goods", {"code": at["code"]}),
            lambda: datapool.update_entity(scope, "goods", other, {"code": at["code"]}),
        )

    def judge(ends: Ends) -> None:
        assert ends.errors == ["ValidationFailed"]
        assert [each.details[0].code for each in ends.results if isinstance(each, Exception)] == ["not_unique"]  # type: ignore[attr-defined]
        assert find(scope, code=at["code"]) == ends.values

    interleave(begin, judge)


@pytest.mark.parametrize("key", ["code", "name"])
def test_an_upsert_makes_one_entity(scope: TenantScope, key: str) -> None:
    """Also where no constraint of the table would prevent a second one."""
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["value"] = new_code()
        return tuple(  # type: ignore[return-value]
            lambda more=more: datapool.upsert_entity(scope, "goods", {"key": [key], "values": {key: at["value"], **more}})
            for more in ({"price": 7}, {"extra": {"a": 1}})
        )

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        assert sorted(each.event for each in ends.results) == ["created", "updated"]
        [entity] = find(scope, **{key: at["value"]})
        assert (entity["price"], entity["extra"]) == (7, {"a": 1})

    interleave(begin, judge)


def test_an_upsert_makes_the_entity_again_that_was_deleted(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["code"] = new_code()
        entity_id = str(datapool.create_entity(scope, "goods", {"code": at["code"]})["id"])
        document = {"key": ["code"], "values": {"code": at["code"], "price": 7}}
        return lambda: datapool.upsert_entity(scope, "goods", document), lambda: datapool.delete_entity(scope, "goods", entity_id)

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        assert [each["price"] for each in find(scope, code=at["code"])] == ([7] if ends.results[0].event == "created" else [])

    interleave(begin, judge)


def test_what_is_referred_to_is_not_deleted(scope: TenantScope) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"] = make(scope)
        return (
            lambda: datapool.create_entity(scope, "orders", {"item": at["id"]}),
            lambda: datapool.delete_entity(scope, "goods", at["id"]),
        )

    def judge(ends: Ends) -> None:
        assert ends.errors in (["Conflict"], ["ValidationFailed"])
        orders = datapool.query_entities(scope, "orders", {"filter": {"item": {"_eq": at["id"]}}}).items
        assert (len(orders), read(scope, at["id"]) is None) in ((1, False), (0, True))

    interleave(begin, judge)


def test_batches_in_opposite_order_are_both_done(scope: TenantScope) -> None:
    at: dict[str, list[str]] = {}

    def begin() -> tuple[Step, Step]:
        at["ids"] = [make(scope), make(scope)]

        def change(field: str, ids: list[str]) -> Step:
            operations = [{"op": "update", "collection": "goods", "id": id_, "values": {field: 7}} for id_ in ids]
            return lambda: datapool.run_batch(scope, operations)

        return change("price", at["ids"]), change("extra", at["ids"][::-1])

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        for entity_id in at["ids"]:
            entity = read(scope, entity_id)
            assert entity is not None
            assert (entity["price"], entity["extra"], entity["_version"]) == (7, 7, 3)
            check_history(scope, entity_id)

    interleave(begin, judge)


def test_a_batch_that_fails_leaves_nothing(scope: TenantScope) -> None:
    """A batch and a single entity want the same unique value; the batch is stored as a whole or not at all."""
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["code"], at["other"] = new_code(), new_code()
        operations = [{"op": "create", "collection": "goods", "values": {"code": at[each]}} for each in ("other", "code")]
        return lambda: datapool.run_batch(scope, operations), lambda: datapool.create_entity(scope, "goods", {"code": at["code"]})

    def judge(ends: Ends) -> None:
        assert ends.errors == ["ValidationFailed"]
        is_whole = not isinstance(ends.results[0], Exception)
        assert len(find(scope, code=at["other"])) == int(is_whole)
        assert len(find(scope, code=at["code"])) == 1

    interleave(begin, judge)


def test_a_field_that_goes_takes_its_values_along(scope: TenantScope) -> None:
    """A change of the collection has no other write beside it."""
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        if at:
            datapool.delete_collection(scope, at["name"], allow_loss=True)
        at["name"] = f"things_{next(numbers)}"
        fields = [{"name": "kept", "type": "text"}, {"name": "gone", "type": "text"}]
        datapool.create_collection(scope, {"name": at["name"], "fields": fields})
        return (
            lambda: datapool.create_entity(scope, at["name"], {"kept": "a", "gone": "b"}),
            lambda: datapool.change_collection(scope, at["name"], {"fields": fields[:1]}, allow_loss=True),
        )

    def judge(ends: Ends) -> None:
        assert ends.errors in ([], ["ValidationFailed"])
        entities = datapool.query_entities(scope, at["name"], {}).items
        assert [(each["kept"], "gone" in each) for each in entities] == ([] if ends.errors else [("a", False)])

    interleave(begin, judge)
