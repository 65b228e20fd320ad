"""The access rules of a collection: what is wrong with one, and what it demands for the one who asks.

A rule is a filter over the entity.  Its values may be placeholders (`$actor.id`), and the names `$actor…` and `$request…`
may also stand in the place of a field.  Whatever is absent makes a comparison false; a rule that cannot be read lets
nobody in.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Field, Inside, Never, Placeholder
from appliance.core.errors import InvalidFilter
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.definition import ACCESS_VERBS, Findings
from appliance.datapool.field_types import read_datetime, read_plain_text

log = logging.getLogger(__name__)

WITH_BODY = ("create", "update")  # what these send can be named in their rules
ROLES = "actor.roles"
_TEXT = Field("text", read_plain_text)
_SUBJECTS: Mapping[str, Field] = {
    "actor.id": _TEXT,
    "actor.kind": _TEXT,
    "actor.email": _TEXT,
    ROLES: _TEXT,
    "request.method": _TEXT,
    "request.app": _TEXT,
    "request.now": Field("ordered", read_datetime),
    "now": Field("ordered", read_datetime),
}


def rule_of(collection: CompiledCollection, verb: str) -> Any:
    """`deny`, `allow`, or the filter."""
    return collection.definition.access.get(verb, "deny") or "allow"


def is_denied(collection: CompiledCollection, verb: str) -> bool:
    """Whether the verb is denied to everybody."""
    return bool(rule_of(collection, verb) == "deny")


def find_faults(collection: CompiledCollection, found: Findings) -> None:
    """Add what is wrong with the rules: fields that are not there, values that do not fit, placeholders nobody knows."""
    for verb in ACCESS_VERBS:
        rule = rule_of(collection, verb)
        if rule in ("deny", "allow"):
            continue
        subjects = _subjects(collection, verb)
        try:
            condition = conditions.parse(rule, _rule_fields(collection, subjects), pointer=f"/access/{verb}")
        except InvalidFilter as error:
            found.details += error.details
            continue
        for message in dict.fromkeys(_faults(condition, subjects)):
            found.add(f"/access/{verb}", "invalid_filter", message)


def demanded(collection: CompiledCollection, verb: str, values: Mapping[str, Any]) -> Condition:
    """The condition an entity must fulfil for the one whose `values` (`{actor, request, now}`) these are."""
    rule = rule_of(collection, verb)
    if rule in ("deny", "allow"):
        return AllOf(()) if rule == "allow" else Never()
    subjects = _subjects(collection, verb)
    fields = _rule_fields(collection, subjects)
    try:
        bound = conditions.bind(conditions.parse(rule, fields), values, fields)
    except InvalidFilter:
        log.exception("the %s rule of the collection %s cannot be read and lets nobody in", verb, collection.name)
        return Never()
    return _settled(bound, {f"${path}": _known(path, field, values) for path, field in subjects.items()})


def _subjects(collection: CompiledCollection, verb: str) -> Mapping[str, Field]:
    """What is known of the one who asks, by its path."""
    if verb not in WITH_BODY:
        return _SUBJECTS
    sent = {f"request.body.{name}": replace(collection.condition_fields[name], inside=None) for name in collection.fields}
    return {**_SUBJECTS, **sent}


def _rule_fields(collection: CompiledCollection, subjects: Mapping[str, Field]) -> dict[str, Field]:
    return {**collection.condition_fields, **{f"${path}": field for path, field in subjects.items()}}


def _faults(condition: Condition, subjects: Mapping[str, Field]) -> Iterator[str]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _faults(part, subjects)
        case Inside(_, _, inner):
            yield from _faults(inner, subjects)
        case Compare(name, operator, value):
            if name == f"${ROLES}" and operator != "_contains":
                yield f'${ROLES} is a list: {{"${ROLES}": {{"_contains": "editor"}}}} asks whether a role is in it'
            whole = operator in ("_in", "_nin") and isinstance(value, Placeholder)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Placeholder):
                    yield from _placeholder_faults(part, subjects, is_list=whole)


def _placeholder_faults(placeholder: Placeholder, subjects: Mapping[str, Field], *, is_list: bool) -> Iterator[str]:
    path = ".".join(placeholder.path)
    if path not in subjects:
        known = ", ".join(f"${each}" for each in sorted(subjects))
        yield f"${path[:60]} is nothing that is known of a request here; known are {known[:600]}"
    elif (path == ROLES) != is_list:
        yield f"${path} does not fit: ${ROLES} is a list, for _in and _nin; everything else is one value"


def _known(path: str, field: Field, values: Mapping[str, Any]) -> Any:
    value: Any = values
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None or path == ROLES:
        return value
    try:
        return field.convert(value)
    except ValueError:
        return None  # what does not fit is as good as absent


def _settled(condition: Condition, known: Mapping[str, Any]) -> Condition:
    """The comparisons with what is known of the one who asks are decided; the entity's remain."""
    match condition:
        case AllOf(parts):
            return AllOf(tuple(_settled(part, known) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_settled(part, known) for part in parts))
        case Compare(name, operator, _) if name in known:
            is_open = (known[name] is not None or operator == "_null") and conditions.matches(condition, known)
            return AllOf(()) if is_open else Never()
        case _:
            return condition
