"""Creating, reading, changing and deleting entities."""

from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import (
    ApplianceError,
    Conflict,
    NotFound,
    PayloadTooLarge,
    ValidationFailed,
    VersionConflict,
)
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool

FULL = {
    "number": "10248",
    "total": "440.5",
    "quantity": 12,
    "weight": 1.5,
    "paid": True,
    "day": "1996-07-04",
    "shipped": "1996-07-16T02:00:00+02:00",
    "state": "new",
    "contact": "vins@example.com",
    "page": "https://example.com/a?b=c",
    "extra": {"b": [1, None], "a": "x"},
}


def findings(error: ApplianceError) -> set[tuple[str, str]]:
    return {(detail.pointer, detail.code) for detail in error.details}


def create(scope: TenantScope, **values: Any) -> dict[str, Any]:
    return datapool.create_entity(scope, "orders", values)


def test_an_entity_comes_back_as_it_was_written(acme: TenantScope) -> None:
    created = create(acme, **FULL)
    expected = FULL | {"total": "440.50", "shipped": "1996-07-16T00:00:00.000Z", "customer": None, "_version": 1}
    assert {name: created[name] for name in expected} == expected
    assert created["id"].startswith("ent_")
    assert created["created_at"] == created["updated_at"]
    assert datapool.get_entity(acme, "orders", created["id"]) == created


def test_a_default_fills_missing_values_but_not_null(acme: TenantScope) -> None:
    assert create(acme, number="1")["quantity"] == 1
    assert create(acme, number="2", quantity=None)["quantity"] is None


def test_every_error_is_answered_at_once(acme: TenantScope) -> None:
    create(acme, number="1")
    bad = {
        "number": "1", "total": "-1", "quantity": 1.5, "weight": "heavy", "paid": 1, "day": "1996-02-30",
        "shipped": "1996-07-16", "state": "lost", "contact": "nobody", "page": "javascript:alert(1)", "extra": {"a": float("nan")},
        "customer": "ent_000000000000000000000", "colour": "red", "id": "ent_x", "_version": 3,
    }  # fmt: skip
    with pytest.raises(ValidationFailed) as refusal:
        create(acme, **bad)
    assert findings(refusal.value) == {
        ("/number", "not_unique"), ("/total", "too_small"), ("/quantity", "wrong_type"), ("/weight", "wrong_type"),
        ("/paid", "wrong_type"), ("/day", "invalid_format"), ("/shipped", "invalid_format"), ("/state", "not_an_option"),
        ("/contact", "invalid_format"), ("/page", "invalid_format"), ("/extra", "invalid_format"),
        ("/customer", "not_found"), ("/colour", "unknown_field"), ("/id", "read_only"), ("/_version", "read_only"),
    }  # fmt: skip


@pytest.mark.parametrize("values", [[], "x", None, 5])
def test_values_are_an_object(acme: TenantScope, values: Any) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        datapool.create_entity(acme, "orders", values)
    assert findings(refusal.value) == {("", "wrong_type")}


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_a_text_no_database_can_hold_is_refused(acme: TenantScope, text: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        create(acme, number=text)
    assert findings(refusal.value) == {("/number", "invalid_format")}


def test_a_required_field_that_is_missing_or_null_is_named(acme: TenantScope) -> None:
    for values in ({}, {"number": None}):
        with pytest.raises(ValidationFailed) as refusal:
            create(acme, **values)
        assert findings(refusal.value) == {("/number", "required")}


def test_an_entity_larger_than_a_mebibyte_is_refused(acme: TenantScope) -> None:
    with pytest.raises(PayloadTooLarge):
        create(acme, number="1", extra="x" * (1 << 20))
    create(acme, number="1", extra="x" * ((1 << 20) - 3))


def test_indexed_texts_have_a_maximum_length(acme: TenantScope) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        create(acme, number="ä" * 1301)
    assert findings(refusal.value) == {("/number", "too_long")}
    create(acme, number="ä" * 1300)


def test_an_update_merges_and_counts_versions(acme: TenantScope) -> None:
    created = create(acme, **FULL)
    changed = datapool.update_entity(
        acme, "orders", created["id"], {"total": "1", "day": None, "extra": {"a": None, "c": 1}}, if_version=1
    )
    assert changed["extra"] == {"b": [1, None], "c": 1}
    assert (changed["total"], changed["day"], changed["_version"]) == ("1.00", None, 2)
    assert changed["contact"] == FULL["contact"]
    assert datapool.find_entity(acme, "orders", created["id"]) == changed


def test_an_update_that_changes_nothing_keeps_the_version(acme: TenantScope) -> None:
    created = create(acme, **FULL)
    assert datapool.update_entity(acme, "orders", created["id"], {"total": "440.50"}) == created


def test_a_replacement_clears_what_it_does_not_name(acme: TenantScope) -> None:
    created = create(acme, **FULL | {"quantity": 5})
    replaced = datapool.replace_entity(acme, "orders", created["id"], {"number": "7"})
    assert (replaced["number"], replaced["total"], replaced["quantity"], replaced["_version"]) == ("7", None, 1, 2)


def test_a_stale_version_changes_nothing(acme: TenantScope) -> None:
    created = create(acme, number="1")
    for change in (
        lambda: datapool.update_entity(acme, "orders", created["id"], {"number": "2"}, if_version=7),
        lambda: datapool.replace_entity(acme, "orders", created["id"], {"number": "2"}, if_version=7),
        lambda: datapool.delete_entity(acme, "orders", created["id"], if_version=7),
    ):
        with pytest.raises(VersionConflict):
            change()
    assert datapool.get_entity(acme, "orders", created["id"]) == created


def test_a_required_value_cannot_be_cleared_nor_a_unique_one_taken(acme: TenantScope) -> None:
    create(acme, number="1")
    second = create(acme, number="2")
    with pytest.raises(ValidationFailed) as refusal:
        datapool.update_entity(acme, "orders", second["id"], {"number": None})
    assert findings(refusal.value) == {("/number", "required")}
    with pytest.raises(ValidationFailed) as refusal:
        datapool.update_entity(acme, "orders", second["id"], {"number": "1"})
    assert findings(refusal.value) == {("/number", "not_unique")}


def test_a_deleted_entity_is_gone(acme: TenantScope) -> None:
    created = create(acme, number="1")
    datapool.delete_entity(acme, "orders", created["id"])
    assert datapool.find_entity(acme, "orders", created["id"]) is None
    with pytest.raises(NotFound):
        datapool.delete_entity(acme, "orders", created["id"])


def test_a_referenced_entity_cannot_be_deleted(acme: TenantScope) -> None:
    customer = datapool.create_entity(acme, "customers", {"code": "VINET"})
    create(acme, number="1", customer=customer["id"])
    with pytest.raises(Conflict, match=r"orders\.customer"):
        datapool.delete_entity(acme, "customers", customer["id"])


def test_an_upsert_creates_once_and_then_merges(acme: TenantScope) -> None:
    first = datapool.upsert_entity(acme, "orders", {"key": ["number"], "values": {"number": "1", "total": "5"}})
    second = datapool.upsert_entity(acme, "orders", {"key": ["number"], "values": {"number": "1", "paid": True}})
    third = datapool.upsert_entity(acme, "orders", {"key": ["number"], "values": {"number": "1", "paid": True}})
    assert (first.event, second.event, third.event) == ("created", "updated", "unchanged")
    assert second.entity["id"] == first.entity["id"]
    assert (second.entity["total"], second.entity["paid"]) == ("5.00", True)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"key": ["number"], "values": {"total": "1"}}, ("/values/number", "required")),
        ({"key": ["colour"], "values": {"number": "1"}}, ("/key/0", "unknown_field")),
        ({"key": [], "values": {"number": "1"}}, ("/key", "required")),
        ({"key": ["day"], "values": {"day": "2026-01-01"}}, ("/values/number", "required")),
        ({"key": ["number"], "values": {"number": "1", "total": "x"}}, ("/values/total", "invalid_format")),
        ({"key": ["number"]}, ("", "validation_failed")),
    ],
)
def test_an_invalid_upsert_is_reported_with_its_pointer(acme: TenantScope, document: Any, expected: tuple[str, str]) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        datapool.upsert_entity(acme, "orders", document)
    assert findings(refusal.value) == {expected}


def test_an_upsert_by_an_ambiguous_key_is_refused(acme: TenantScope) -> None:
    create(acme, number="1", day="2026-01-01")
    create(acme, number="2", day="2026-01-01")
    with pytest.raises(Conflict, match="more than one"):
        datapool.upsert_entity(acme, "orders", {"key": ["day"], "values": {"day": "2026-01-01", "paid": True}})


def test_an_entity_of_another_tenant_is_treated_as_unknown(acme: TenantScope, globex: TenantScope) -> None:
    created = create(acme, number="1")
    unknown = created["id"][:-5] + "00000"
    for scope, entity_id in ((globex, created["id"]), (acme, unknown)):
        assert datapool.find_entity(scope, "orders", entity_id) is None
        for verb in (
            lambda s=scope, e=entity_id: datapool.get_entity(s, "orders", e),
            lambda s=scope, e=entity_id: datapool.update_entity(s, "orders", e, {"number": "9"}),
            lambda s=scope, e=entity_id: datapool.replace_entity(s, "orders", e, {"number": "9"}),
            lambda s=scope, e=entity_id: datapool.delete_entity(s, "orders", e),
        ):
            with pytest.raises(NotFound) as refusal:
                verb()
            assert refusal.value.message == f"there is no entity {entity_id!r} in orders"
    customer = datapool.create_entity(globex, "customers", {"code": "X"})
    with pytest.raises(ValidationFailed) as stranger:
        create(acme, number="2", customer=customer["id"])
    assert findings(stranger.value) == {("/customer", "not_found")}


@pytest.mark.parametrize("name", ["nothing", "Orders", "a; DROP TABLE tenant", "\ud800", "", None, ["orders"]])
def test_an_unknown_collection_is_not_found(acme: TenantScope, name: Any) -> None:
    with pytest.raises(NotFound):
        datapool.create_entity(acme, name, {})
    with pytest.raises(NotFound):
        datapool.query_entities(acme, name, {})


def test_a_verb_inside_a_write_is_part_of_it(acme: TenantScope) -> None:
    class Undone(Exception):
        pass

    def work() -> None:
        create(acme, number="1")
        with pytest.raises(ValidationFailed):
            create(acme, number="1")
        assert datapool.query_entities(acme, "orders", {"count": "exact"}).total == 1
        raise Undone

    with pytest.raises(Undone):
        db.write(work)
    assert datapool.query_entities(acme, "orders", {"count": "exact"}).total == 0


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_listeners_are_notified_of_committed_changes(acme: TenantScope) -> None:
    events: list[tuple[str, str, str, Any]] = []

    def listen(changed: datapool.EntitiesChanged) -> None:
        tenant = changed.scope.tenant_id
        events.extend((tenant, change.collection, change.event, change.entity["_version"]) for change in changed.changes)

    remove_listener = hub.subscribe(datapool.EntitiesChanged, listen)
    try:
        created = create(acme, number="1")
        datapool.update_entity(acme, "orders", created["id"], {"paid": True})
        datapool.update_entity(acme, "orders", created["id"], {"paid": True})
        operations = [{"op": "create", "collection": "orders", "values": {"number": n}} for n in ("2", "1")]
        with pytest.raises(ValidationFailed):
            datapool.run_batch(acme, operations)
        datapool.run_batch(acme, operations[:1], dry_run=True)
        datapool.delete_entity(acme, "orders", created["id"])
    finally:
        remove_listener()
    assert events == [("acme", "orders", event, v) for event, v in (("created", 1), ("updated", 2), ("deleted", 2))]
