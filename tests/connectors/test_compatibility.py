"""Incompatible changes in a release are detected; a new major version allows them."""

from copy import deepcopy
from typing import Any

import pytest

from appliance.connectors.development.compatibility import broken_promises

OLD: dict[str, Any] = {
    "name": "stock",
    "version": "1.2.0",
    "settings": {"properties": {"url": {"type": "string"}}, "required": ["url"], "additionalProperties": False},
    "actions": {
        "find": {
            "effect": "read",
            "input": {"properties": {"id": {"type": ["string", "integer"], "maxLength": 9}, "kind": {"enum": ["a", "b"]}}},
            "output": {
                "properties": {"item": {"properties": {"id": {"type": "string"}}, "required": ["id"]}},
                "required": ["item"],
            },
        }
    },
    "triggers": {"new": {"query": {"properties": {"kind": {}}}, "item": {"properties": {"id": {"type": "string"}}}}},
}
FIND = ("actions", "find")


def changed(*steps: Any) -> dict[str, Any]:
    """OLD with the value at the steps (all but the last) replaced by the last; `...` removes."""
    new = deepcopy(OLD)
    *way, name, value = steps
    part: Any = new
    for step in way:
        part = part[step]
    if value is ...:
        del part[name]
    else:
        part[name] = value
    return new


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (changed("name", "stack"), "is called stack now"),
        (changed(*FIND, ...), "action find is gone"),
        (changed(*FIND, "effect", "write"), "was read and is write now"),
        (changed(*FIND, "input", "required", ["kind"]), "newly requires kind"),
        (changed(*FIND, "input", "properties", "id", "type", "string"), "takes no integer"),
        (changed(*FIND, "input", "properties", "id", "maxLength", 8), "smaller maxLength"),
        (changed(*FIND, "input", "properties", "id", "minLength", 1), "greater minLength"),
        (changed(*FIND, "input", "properties", "id", "pattern", "x"), "another pattern"),
        (changed(*FIND, "input", "properties", "id", "enum", ["1"]), "only certain values"),
        (changed(*FIND, "input", "properties", "kind", "enum", ["a"]), "takes 'b' no more"),
        (changed(*FIND, "input", "additionalProperties", False), "refuses further members"),
        (
            changed(
                *FIND,
                "input",
                {"properties": {"id": OLD["actions"]["find"]["input"]["properties"]["id"]}, "additionalProperties": False},
            ),
            "does not know kind",
        ),
        (changed(*FIND, "output", "properties", "item", ...), "does not hold item"),
        (changed(*FIND, "output", "required", []), "no longer promises item"),
        (changed(*FIND, "output", "properties", "item", "properties", "id", "type", ["string", "null"]), "may be null now"),
        (changed("settings", "required", ["url", "token"]), "The settings newly requires token"),
        (changed("triggers", "new", ...), "trigger new is gone"),
        (changed("triggers", "new", "item", "properties", "id", ...), "does not hold id"),
        (changed("triggers", "new", "query", "required", ["kind"]), "newly requires kind"),
    ],
)
def test_incompatible_changes_are_reported_unless_the_major_version_is_new(new: dict[str, Any], message: str) -> None:
    problems = broken_promises(OLD, new)
    assert any(message in each for each in problems), problems
    assert all(each.endswith("Keep it, or release a new major version.") for each in problems)
    assert broken_promises(OLD, {**new, "version": "2.0.0"}) == []


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        changed(*FIND, "effect", "read"),
        changed("actions", "add", {"effect": "write", "input": {}, "output": {}}),
        changed(*FIND, "input", "properties", "more", {"type": "string"}),
        changed(*FIND, "input", "properties", "id", "maxLength", 10),
        changed(*FIND, "input", "properties", "id", {}),
        changed(*FIND, "input", "properties", "kind", "enum", ["a", "b", "c"]),
        changed(*FIND, "output", "properties", "more", {}),
        changed("settings", "properties", "more", {}),
    ],
)
def test_additions_and_widenings_are_compatible(new: dict[str, Any]) -> None:
    assert broken_promises(OLD, new) == []
