"""Many changes as one."""

from typing import Any

import pytest

from appliance.core.errors import ApplianceError, ValidationFailed, VersionConflict
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool


def findings(error: ApplianceError) -> list[tuple[str, str]]:
    return [(detail.pointer, detail.code) for detail in error.details]


def total(scope: TenantScope, collection: str = "orders") -> int | None:
    return datapool.query_entities(scope, collection, {"count": "exact"}).total


def creation(number: str, **values: Any) -> dict[str, Any]:
    return {"op": "create", "collection": "orders", "values": {"number": number, **values}}


def test_outcomes_come_in_order_across_operations_and_collections(acme: TenantScope) -> None:
    first = datapool.create_entity(acme, "orders", {"number": "1"})
    outcomes = datapool.run_batch(
        acme,
        [
            {"op": "create", "collection": "customers", "values": {"code": "A"}},
            creation("2"),
            creation("3"),
            {"op": "update", "collection": "orders", "id": first["id"], "values": {"paid": True}, "if_version": 1},
            {"op": "upsert", "collection": "orders", "key": ["number"], "values": {"number": "3", "total": "7"}},
            {"op": "upsert", "collection": "orders", "key": ["number"], "values": {"number": "4"}},
            {"op": "delete", "collection": "orders", "id": first["id"]},
        ],
    )
    assert [outcome.event for outcome in outcomes] == ["created", "created", "created", "updated", "updated", "created", "deleted"]
    assert [outcome.entity.get("number") for outcome in outcomes[1:]] == ["2", "3", "1", "3", "4", "1"]
    assert outcomes[4].entity["total"] == "7.00"
    assert total(acme) == 3
    assert datapool.query_entities(acme, "orders", {"sort": "number"}).items[0] == outcomes[1].entity


def test_one_wrong_operation_undoes_all_and_every_error_is_named(acme: TenantScope) -> None:
    datapool.create_entity(acme, "orders", {"number": "1"})
    with pytest.raises(ValidationFailed) as refusal:
        datapool.run_batch(
            acme,
            [
                creation("2"),
                creation("1"),
                {"op": "update", "collection": "orders", "id": "ent_unknown", "values": {}},
                creation("3", customer="ent_000000000000000000000"),
                creation("2"),
                {"op": "upsert", "collection": "customers", "key": ["country"], "values": {"country": "FR"}},
            ],
        )
    assert findings(refusal.value) == [
        ("/operations/1/values/number", "not_unique"),
        ("/operations/2", "not_found"),
        ("/operations/3/values/customer", "not_found"),
        ("/operations/4/values/number", "not_unique"),
        ("/operations/5/values/code", "required"),
    ]
    assert total(acme) == 1


def test_errors_independent_of_the_entities_are_reported_first(acme: TenantScope) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        datapool.run_batch(
            acme,
            [
                "create",
                {"op": "drop"},
                {"op": "create", "collection": "nothing", "values": {}},
                {"op": "create", "collection": "orders", "values": {"number": 5, "colour": 1}},
                {"op": "update", "collection": "orders", "values": {"paid": "yes"}},
                {"op": "delete", "collection": "orders", "id": 5, "key": []},
                {"op": "upsert", "collection": "orders", "key": ["nothing"], "values": {"number": "1"}},
                {"op": "create", "collection": {}, "values": {}, "if_version": 1},
                {"op": "update", "collection": "orders", "id": "ent_x", "values": {}, "if_version": True},
            ],
        )
    assert findings(refusal.value) == [
        ("/operations/0/op", "not_an_option"),
        ("/operations/1/op", "not_an_option"),
        ("/operations/2/collection", "not_found"),
        ("/operations/3/values/number", "wrong_type"),
        ("/operations/3/values/colour", "unknown_field"),
        ("/operations/4/id", "required"),
        ("/operations/5/key", "unknown_member"),
        ("/operations/5/id", "wrong_type"),
        ("/operations/6/key/0", "unknown_field"),
        ("/operations/7/if_version", "unknown_member"),
        ("/operations/7/collection", "wrong_type"),
        ("/operations/8/if_version", "wrong_type"),
    ]


@pytest.mark.parametrize("operations", [None, {}, [], "x", [creation(str(n)) for n in range(1001)]])
def test_a_batch_is_a_list_of_bounded_length(acme: TenantScope, operations: Any) -> None:
    with pytest.raises(ValidationFailed, match="1 to 1000"):
        datapool.run_batch(acme, operations)


def test_a_stale_version_is_a_version_conflict(acme: TenantScope) -> None:
    created = datapool.create_entity(acme, "orders", {"number": "1"})
    stale = {"op": "update", "collection": "orders", "id": created["id"], "values": {"paid": True}, "if_version": 9}
    with pytest.raises(VersionConflict) as refusal:
        datapool.run_batch(acme, [creation("2"), stale])
    assert findings(refusal.value) == [("/operations/1/if_version", "version_conflict")]
    assert total(acme) == 1


def test_a_dry_run_answers_the_outcomes_and_changes_nothing(acme: TenantScope) -> None:
    outcomes = datapool.run_batch(acme, [creation("1"), creation("2", total="3")], dry_run=True)
    assert [outcome.entity["total"] for outcome in outcomes] == [None, "3.00"]
    assert total(acme) == 0
    with pytest.raises(ValidationFailed):
        datapool.run_batch(acme, [creation("1"), creation("1")], dry_run=True)


def test_a_thousand_creations_fit_and_keep_their_order(acme: TenantScope) -> None:
    outcomes = datapool.run_batch(acme, [creation(f"{n:04d}", total=str(n)) for n in range(1000)])
    assert [outcome.entity["number"] for outcome in outcomes] == [f"{n:04d}" for n in range(1000)]
    by_id = datapool.query_entities(acme, "orders", {"sort": "id", "limit": 500}).items
    assert [entity["number"] for entity in by_id] == [f"{n:04d}" for n in range(500)]


def test_a_batch_cannot_reach_another_tenant(acme: TenantScope, globex: TenantScope) -> None:
    created = datapool.create_entity(globex, "orders", {"number": "1"})
    with pytest.raises(ValidationFailed) as refusal:
        datapool.run_batch(acme, [{"op": "delete", "collection": "orders", "id": created["id"]}])
    assert findings(refusal.value) == [("/operations/0", "not_found")]
    datapool.run_batch(acme, [creation("1")])
    assert total(acme) == total(globex) == 1
