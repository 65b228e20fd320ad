"""Detects breaking changes between two releases of a connector, which require a new major version."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors.contract import EFFECTS, Connector

Declaration = dict[str, Any]


def declaration_of(connector: type[Connector]) -> Declaration:
    """Return a connector's declaration as JSON, for `declaration.json`."""
    return {
        "name": connector.name,
        "version": connector.version,
        "settings": dict(connector.settings_schema),
        "actions": {
            each.name: {"effect": each.effect, "input": dict(each.input), "output": dict(each.output)} for each in connector.actions
        },
        "triggers": {each.name: {"query": dict(each.query), "item": dict(each.item)} for each in connector.triggers},
    }


def broken_promises(old: Declaration, new: Declaration) -> list[str]:
    """Describe each change that breaks processes or integrations built with `old`; empty for a new major version."""
    if _major(new["version"]) > _major(old["version"]):
        return []
    return [f"{each} Keep it, or release a new major version." for each in _broken(old, new)]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _broken(old: Declaration, new: Declaration) -> Iterator[str]:
    if old["name"] != new["name"]:
        yield f"The connector {old['name']} is called {new['name']} now."
    yield from _narrowed_inputs(old["settings"], new["settings"], "the settings")
    for name, was in old["actions"].items():
        now = new["actions"].get(name)
        if now is None:
            yield f"The action {name} is gone."
            continue
        if EFFECTS.index(now["effect"]) > EFFECTS.index(was["effect"]):
            yield f"The action {name} was {was['effect']} and is {now['effect']} now."
        yield from _narrowed_inputs(was["input"], now["input"], f"the input of {name}")
        yield from _narrowed_outputs(was["output"], now["output"], f"the output of {name}")
    for name, was in old["triggers"].items():
        now = new["triggers"].get(name)
        if now is None:
            yield f"The trigger {name} is gone."
            continue
        yield from _narrowed_inputs(was["query"], now["query"], f"the query of {name}")
        yield from _narrowed_outputs(was["item"], now["item"], f"the item of {name}")


def _narrowed_inputs(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> Iterator[str]:
    """Describe inputs that were accepted before and no longer are."""
    members, old_members = _members(new), _members(old)
    for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{_sentence(where)} newly requires {name}."
    closed = new.get("additionalProperties") is False
    for name, part in old_members.items():
        if name in members:
            yield from _narrowed(part, members[name], f"{name} of {where}")
            if isinstance(part, Mapping) and isinstance(members[name], Mapping):
                yield from _narrowed_inputs(part, members[name], f"{name} of {where}")
        elif closed:
            yield f"{_sentence(where)} does not know {name} any more."
    if closed and old.get("additionalProperties", True) is not False:
        yield f"{_sentence(where)} refuses further members now."


_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def _narrowed(old: Any, new: Any, where: str) -> Iterator[str]:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return
    if lost := sorted(_types(old) - _types(new)):
        yield f"{_sentence(where)} takes no {' or '.join(lost)} any more."
    if "enum" in new and (lost_values := [value for value in old.get("enum", ()) if value not in new["enum"]]):
        yield f"{_sentence(where)} takes {lost_values[0]!r} no more."
    if "enum" in new and "enum" not in old and "const" not in old:
        yield f"{_sentence(where)} takes only certain values now."
    for bound in _LOWER_BOUNDS:
        if bound in new and new[bound] > old.get(bound, float("-inf")):
            yield f"{_sentence(where)} has a greater {bound} now."
    for bound in _UPPER_BOUNDS:
        if bound in new and new[bound] < old.get(bound, float("inf")):
            yield f"{_sentence(where)} has a smaller {bound} now."
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{_sentence(where)} has another pattern now."


def _narrowed_outputs(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> Iterator[str]:
    """Describe outputs that were promised before and no longer are."""
    members = _members(new)
    for name in sorted(set(old.get("required", ())) - set(new.get("required", ()))):
        if name in members:
            yield f"{_sentence(where)} no longer promises {name}."
    for name, part in _members(old).items():
        if name not in members:
            yield f"{_sentence(where)} does not hold {name} any more."
            continue
        now = members[name]
        if isinstance(part, Mapping) and isinstance(now, Mapping):
            if gained := sorted(_types(now) - _types(part)):
                yield f"{_sentence(name)} of {where} may be {' or '.join(gained)} now."
            yield from _narrowed_outputs(part, now, f"{name} of {where}")


_ALL_TYPES = frozenset({"string", "number", "boolean", "array", "object", "null"})


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the types a value may have; `number` includes `integer`."""
    declared = schema.get("type")
    if declared is None:
        return _ALL_TYPES | {"integer"}
    types = frozenset([declared] if isinstance(declared, str) else declared)
    return types | {"integer"} if "number" in types else types


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties", {})
    return properties if isinstance(properties, Mapping) else {}
