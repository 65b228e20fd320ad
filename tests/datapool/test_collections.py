"""Collections: definitions, their errors, and changes that carry entities over."""

from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool


def findings(error: ValidationFailed) -> set[tuple[str, str]]:
    return {(detail.pointer, detail.code) for detail in error.details}


def make(scope: TenantScope, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return datapool.create_collection(scope, {"name": "things", "fields": list(fields), **more})


def change(scope: TenantScope, *fields: dict[str, Any], **options: Any) -> dict[str, Any]:
    return datapool.change_collection(scope, "things", {"fields": list(fields)}, **options)


def add(scope: TenantScope, **values: Any) -> dict[str, Any]:
    return datapool.create_entity(scope, "things", values)


def values_of(scope: TenantScope, field: str) -> list[Any]:
    return [entity[field] for entity in datapool.query_entities(scope, "things", {"sort": "id"}).items]


def test_a_definition_comes_back_complete(acme: TenantScope) -> None:
    created = make(
        acme, {"name": "sku", "type": "text"}, {"id": "p", "name": "price", "type": "decimal", "scale": 2},
        indexes=[{"fields": ["sku", "price"], "unique": True}], search=["sku"], access={"list": {"sku": "$actor.id"}},
    )  # fmt: skip
    plain = {"required": False, "unique": False, "default": None}
    assert created["fields"] == [
        {"id": "sku", "name": "sku", "type": "text", **plain},
        {"id": "p", "name": "price", "type": "decimal", **plain, "scale": 2},
    ]
    assert created["indexes"] == [{"fields": ["sku", "price"], "unique": True}]
    assert created["access"] == {"list": {"sku": "$actor.id"}, "view": "deny", "create": "deny", "update": "deny", "delete": "deny"}
    assert created["_version"] == 1
    assert datapool.get_collection(acme, "things") == created
    assert [c["name"] for c in datapool.list_collections(acme, PageRequest()).items] == ["customers", "orders", "things"]


def test_every_error_of_a_definition_is_answered_at_once(acme: TenantScope) -> None:
    fields: list[Any] = [
        {"name": "a", "type": "text", "colour": 1},
        {"name": "a", "type": "text"},
        {"name": "id", "type": "text"},
        {"name": "b c", "type": "text"},
        {"name": "d", "type": "money"},
        {"name": "e", "type": "autodate"},
        {"name": "f", "type": "select"},
        {"name": "g", "type": "relation", "collection": "nothing", "default": "x"},
        {"name": "h", "type": "integer", "min": "x"},
        {"name": "i", "type": "integer", "default": "many"},
        {"name": "j", "type": "decimal", "scale": 99},
        {"name": "k", "type": "json", "unique": True},
        {"name": "l", "type": "text", "required": "yes"},
        "m",
        {"name": ["n"], "type": {"o": 1}, "id": {}},
        {"name": "p", "type": "number", "max": []},
    ]
    with pytest.raises(ValidationFailed) as refusal:
        make(
            acme, *fields, indexes=[{"fields": ["zz"]}, "a"], search=["a", "zz"], access={"list": {"_like": 1}, "see": "deny"}, x=1
        )
    assert findings(refusal.value) == {
        ("/x", "unknown_member"), ("/fields/0/colour", "unknown_member"), ("/fields/2/name", "reserved"),
        ("/fields/3/name", "invalid_format"), ("/fields/3/id", "invalid_format"), ("/fields/4/type", "not_an_option"),
        ("/fields/5/type", "not_an_option"), ("/fields/6/options", "wrong_type"), ("/fields/7/default", "not_an_option"),
        ("/fields/8", "wrong_type"), ("/fields/9/default", "wrong_type"), ("/fields/10/scale", "wrong_type"),
        ("/fields/11/unique", "not_an_option"), ("/fields/12/required", "wrong_type"), ("/fields/13", "wrong_type"),
        ("/fields/14/name", "invalid_format"), ("/fields/14/id", "invalid_format"), ("/fields/14/type", "not_an_option"),
        ("/fields/15", "wrong_type"), ("/indexes/0/fields/0", "not_found"), ("/indexes/1", "wrong_type"),
        ("/search/1", "not_found"), ("/access/list/_like", "invalid_filter"), ("/access/see", "unknown_member"),
    }  # fmt: skip
    with pytest.raises(ValidationFailed) as twice:
        make(
            acme, {"name": "a", "type": "text"}, {"name": "A", "type": "text", "id": "b"}, {"name": "c", "type": "text", "id": "a"}
        )
    assert findings(twice.value) == {("/fields/1/name", "not_unique"), ("/fields/2/id", "not_unique")}


def test_access_rules_name_fields_that_exist(acme: TenantScope) -> None:
    fields = [{"name": "a", "type": "integer"}, {"name": "who", "type": "relation", "collection": "customers"}]
    with pytest.raises(ValidationFailed) as refusal:
        make(acme, *fields, access={"list": {"b": 1}, "view": {"a": "x"}, "create": {"who": {"colour": 1}}})
    assert findings(refusal.value) == {
        ("/access/list/b", "invalid_filter"), ("/access/view/a", "invalid_filter"), ("/access/create/who/colour", "invalid_filter"),
    }  # fmt: skip
    make(acme, *fields, access={"list": "allow", "view": {"who": {"code": "$actor.id"}}})
    with pytest.raises(ValidationFailed):
        change(acme, fields[0], allow_loss=True)


@pytest.mark.parametrize("name", ["", "Orders", "1a", "a--b", "a_", "batch", "x" * 64, None, 5, "a b", 'a"'])
def test_a_collection_needs_a_proper_name(acme: TenantScope, name: Any) -> None:
    with pytest.raises(ValidationFailed):
        datapool.create_collection(acme, {"name": name, "fields": [{"name": "a", "type": "text"}]})


@pytest.mark.parametrize("name", ["a", "order_lines", "order-lines", "x" * 63])
def test_names_may_have_underscores_and_hyphens(acme: TenantScope, name: str) -> None:
    datapool.create_collection(acme, {"name": name, "fields": [{"name": "select", "type": "text"}]})
    assert datapool.create_entity(acme, name, {"select": "from"})["select"] == "from"


def test_a_relation_needs_an_existing_collection_and_may_refer_to_its_own(acme: TenantScope, globex: TenantScope) -> None:
    datapool.create_collection(globex, {"name": "foreign", "fields": [{"name": "a", "type": "text"}]})
    with pytest.raises(ValidationFailed) as refusal:
        make(acme, {"name": "to", "type": "relation", "collection": "foreign"})
    assert findings(refusal.value) == {("/fields/0/collection", "not_found")}
    make(acme, {"name": "parent", "type": "relation", "collection": "things"})
    top = add(acme)
    child = add(acme, parent=top["id"])
    with pytest.raises(Conflict):
        datapool.delete_entity(acme, "things", top["id"])
    datapool.delete_entity(acme, "things", child["id"])
    datapool.delete_collection(acme, "things", allow_loss=True)


def test_a_collection_is_created_once_per_tenant(acme: TenantScope, globex: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"})
    with pytest.raises(AlreadyExists):
        make(acme, {"name": "a", "type": "text"})
    make(globex, {"name": "b", "type": "text"})
    with pytest.raises(NotFound):
        datapool.get_collection(acme, "unknown")


def test_a_collection_in_use_is_not_deleted(acme: TenantScope, globex: TenantScope) -> None:
    with pytest.raises(Conflict, match=r"orders\.customer"):
        datapool.delete_collection(acme, "customers")
    datapool.create_entity(acme, "orders", {"number": "1"})
    with pytest.raises(Conflict, match="allow_loss"):
        datapool.delete_collection(acme, "orders")
    datapool.delete_collection(acme, "orders", allow_loss=True)
    with pytest.raises(NotFound):
        datapool.query_entities(acme, "orders", {})
    assert datapool.query_entities(globex, "orders", {}).items == []


def test_a_unique_index_over_two_fields_holds(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"}, {"name": "b", "type": "integer"}, indexes=[{"fields": ["a", "b"], "unique": True}])
    add(acme, a="x", b=1)
    add(acme, a="x", b=2)
    add(acme, a="x")
    add(acme, a="x")
    with pytest.raises(ValidationFailed) as refusal:
        add(acme, a="x", b=1)
    assert findings(refusal.value) == {("/b", "not_unique")}


def test_adding_renaming_and_dropping_fields(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"}, {"name": "b", "type": "text"}, indexes=[{"fields": ["b"]}], search=["a"])
    add(acme, a="1", b="x")
    patch = {
        "fields": [{"id": "a", "name": "title", "type": "text"}, {"name": "c", "type": "integer", "required": True, "default": 3}]
    }
    patch |= {"indexes": [{"fields": ["c"]}], "search": ["title"]}
    planned = datapool.change_collection(acme, "things", patch, dry_run=True)
    assert [(s["field"], s["change"], s["lost"]) for s in planned["steps"]] == [
        ("b", "drop", 1),
        ("title", "rename", 0),
        ("c", "add", 0),
    ]
    with pytest.raises(ValidationFailed) as refusal:
        datapool.change_collection(acme, "things", patch)
    assert findings(refusal.value) == {("/fields/b", "would_lose_data")}
    assert datapool.get_collection(acme, "things")["_version"] == 1
    changed = datapool.change_collection(acme, "things", patch, allow_loss=True, if_version=1)
    assert changed["_version"] == 2
    [entity] = datapool.query_entities(acme, "things", {"search": "1"}).items
    assert {name: entity[name] for name in entity if name not in ("id", "created_at", "updated_at")} == {
        "title": "1",
        "c": 3,
        "_version": 1,
    }
    with pytest.raises(VersionConflict):
        datapool.change_collection(acme, "things", {"description": "x"}, if_version=1)


@pytest.mark.parametrize(
    ("before", "after", "values", "expected"),
    [
        ({"type": "text"}, {"type": "integer"}, ["1", "-20", None], [1, -20, None]),
        ({"type": "text"}, {"type": "decimal"}, ["1.50", "2"], ["1.5", "2"]),
        ({"type": "decimal", "scale": 2}, {"type": "decimal", "scale": 4}, ["1.5", "0.07"], ["1.5000", "0.0700"]),
        ({"type": "integer"}, {"type": "text"}, [1, 2**60], ["1", str(2**60)]),
        ({"type": "number"}, {"type": "integer"}, [1, 2.0], [1, 2]),
        ({"type": "boolean"}, {"type": "text"}, [True, False], ["true", "false"]),
        ({"type": "text"}, {"type": "boolean"}, ["true", "0"], [True, False]),
        ({"type": "text"}, {"type": "json"}, ['{"a": 1}', "2"], [{"a": 1}, 2]),
        ({"type": "date"}, {"type": "text"}, ["2026-01-01"], ["2026-01-01"]),
        ({"type": "text"}, {"type": "select", "options": ["a", "b"]}, ["a", "b"], ["a", "b"]),
        ({"type": "text"}, {"type": "text", "max_length": 1}, ["a"], ["a"]),
    ],
)
def test_values_are_converted(acme: TenantScope, before: Any, after: Any, values: list[Any], expected: list[Any]) -> None:
    make(acme, {"name": "a", **before})
    for value in values:
        add(acme, a=value)
    change(acme, {"name": "a", **after})
    assert values_of(acme, "a") == expected


def test_values_that_do_not_fit_are_lost_only_when_allowed(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"})
    for value in ("1", "many"):
        add(acme, a=value)
    planned = change(acme, {"name": "a", "type": "integer"}, dry_run=True)
    assert [(s["change"], s["lost"]) for s in planned["steps"]] == [("convert", 1)]
    with pytest.raises(ValidationFailed):
        change(acme, {"name": "a", "type": "integer"})
    assert values_of(acme, "a") == ["1", "many"]
    change(acme, {"name": "a", "type": "integer"}, allow_loss=True)
    assert values_of(acme, "a") == [1, None]


@pytest.mark.parametrize(
    "after",
    [
        [{"name": "a", "type": "text", "unique": True}],
        [{"name": "a", "type": "text", "required": True}],
        [{"name": "a", "type": "text"}, {"name": "b", "type": "text", "required": True}],
        [{"name": "a", "type": "relation", "collection": "customers"}],
    ],
)
def test_a_change_that_entities_violate_is_refused_even_if_loss_is_allowed(acme: TenantScope, after: list[Any]) -> None:
    make(acme, {"name": "a", "type": "text"})
    for value in ("x", "x", None):
        add(acme, a=value)
    with pytest.raises(ValidationFailed) as refusal:
        change(acme, *after, allow_loss=True)
    assert {code for _, code in findings(refusal.value)} == {"blocked"}
    assert values_of(acme, "a") == ["x", "x", None]


def test_long_texts_block_an_index(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"})
    add(acme, a="x" * 3000)
    with pytest.raises(ValidationFailed) as refusal:
        datapool.change_collection(acme, "things", {"indexes": [{"fields": ["a"]}]}, allow_loss=True)
    assert findings(refusal.value) == {("/fields/a", "blocked")}


def test_a_field_that_becomes_required_gets_its_default(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "integer"})
    add(acme)
    change(acme, {"name": "a", "type": "integer", "required": True, "default": 5})
    assert values_of(acme, "a") == [5]


def test_a_relation_can_be_added_and_dropped(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"})
    add(acme, a="1")
    change(acme, {"name": "a", "type": "text"}, {"name": "who", "type": "relation", "collection": "customers"})
    customer = datapool.create_entity(acme, "customers", {"code": "A"})
    add(acme, a="2", who=customer["id"])
    change(acme, {"name": "a", "type": "text"}, allow_loss=True)
    datapool.delete_entity(acme, "customers", customer["id"])
    assert values_of(acme, "a") == ["1", "2"]


def test_a_change_without_a_difference_keeps_the_version(acme: TenantScope) -> None:
    make(acme, {"name": "a", "type": "text"})
    assert change(acme, {"name": "a", "type": "text"})["_version"] == 1
    assert datapool.change_collection(acme, "things", {"access": {"list": "allow"}})["_version"] == 2


@pytest.mark.parametrize("patch", [[], {"name": "others"}, {"fields": []}, {"fields": None}, {"colour": 1}, {"fields": {}}])
def test_a_wrong_change_is_refused(acme: TenantScope, patch: Any) -> None:
    make(acme, {"name": "a", "type": "text"})
    with pytest.raises(ValidationFailed):
        datapool.change_collection(acme, "things", patch)


def test_a_change_that_was_rolled_back_leaves_no_trace(acme: TenantScope) -> None:
    class Undone(Exception):
        pass

    make(acme, {"name": "a", "type": "text"})

    def work() -> None:
        change(acme, {"name": "a", "type": "text"}, {"name": "b", "type": "text"})
        add(acme, a="1", b="2")
        raise Undone

    with pytest.raises(Undone):
        db.write(work)
    change(acme, {"name": "a", "type": "text"}, {"name": "c", "type": "integer"})
    assert set(add(acme, c=1)) == {"id", "created_at", "updated_at", "_version", "a", "c"}
