"""Validates the access rules of a collection and turns them into conditions for one requester.

A rule is a filter over the entity.  Its values may be placeholders (`$actor.id`), and the names `$actor…` and `$request…`
may also take the place of a field.  A comparison with an absent value is false; a rule that cannot be parsed denies
everything.
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
from appliance.datapool.field_types import parse_datetime, parse_plain_text

log = logging.getLogger(__name__)

WITH_BODY = ("create", "update")  # rules of these verbs can refer to `$request.body`
ROLES = "actor.roles"
_TEXT = Field("text", parse_plain_text)
_SUBJECTS: Mapping[str, Field] = {
    "actor.id": _TEXT,
    "actor.kind": _TEXT,
    "actor.email": _TEXT,
    ROLES: _TEXT,
    "request.method": _TEXT,
    "request.app": _TEXT,
    "request.now": Field("ordered", parse_datetime),
    "now": Field("ordered", parse_datetime),
}


def get_rule(collection: CompiledCollection, verb: str) -> Any:
    """The rule of the verb: `deny`, `allow`, or a filter."""
    return collection.definition.access.get(verb, "deny") or "allow"


def is_denied(collection: CompiledCollection, verb: str) -> bool:
    """Whether the verb is denied to every requester."""
    return bool(get_rule(collection, verb) == "deny")


def find_rule_errors(collection: CompiledCollection, findings: Findings) -> None:
    """Add the errors of all rules: unknown fields, values of the wrong type and unknown placeholders."""
    for verb in ACCESS_VERBS:
        rule = get_rule(collection, verb)
        if rule in ("deny", "allow"):
            continue
        subjects = _subjects(collection, verb)
        try:
            condition = conditions.parse(rule, _rule_fields(collection, subjects), pointer=f"/access/{verb}")
        except InvalidFilter as error:
            findings.details += error.details
            continue
        for message in dict.fromkeys(_find_errors(condition, subjects)):
            findings.add(f"/access/{verb}", "invalid_filter", message)


def rule_condition(collection: CompiledCollection, verb: str, values: Mapping[str, Any]) -> Condition:
    """The condition an entity must fulfil; `values` describes the requester as `{actor, request, now}`."""
    rule = get_rule(collection, verb)
    if rule in ("deny", "allow"):
        return AllOf(()) if rule == "allow" else Never()
    subjects = _subjects(collection, verb)
    fields = _rule_fields(collection, subjects)
    try:
        condition = conditions.bind(conditions.parse(rule, fields), values, fields)
    except InvalidFilter:
        log.exception("the %s rule of the collection %s cannot be parsed; access is denied", verb, collection.name)
        return Never()
    return _evaluate_subjects(condition, {f"${path}": _resolve_subject(path, field, values) for path, field in subjects.items()})


def _subjects(collection: CompiledCollection, verb: str) -> Mapping[str, Field]:
    """The members of the requester and the request that a rule of this verb can use, by path."""
    if verb not in WITH_BODY:
        return _SUBJECTS
    sent = {f"request.body.{name}": replace(collection.condition_fields[name], inside=None) for name in collection.fields}
    return {**_SUBJECTS, **sent}


def _rule_fields(collection: CompiledCollection, subjects: Mapping[str, Field]) -> dict[str, Field]:
    return {**collection.condition_fields, **{f"${path}": field for path, field in subjects.items()}}


def _find_errors(condition: Condition, subjects: Mapping[str, Field]) -> Iterator[str]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _find_errors(part, subjects)
        case Inside(_, _, inner):
            yield from _find_errors(inner, subjects)
        case Compare(name, operator, value):
            if name == f"${ROLES}" and operator != "_contains":
                yield f'${ROLES} is a list; write {{"${ROLES}": {{"_contains": "editor"}}}} to check for one role'
            whole = operator in ("_in", "_nin") and isinstance(value, Placeholder)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Placeholder):
                    yield from _find_placeholder_errors(part, subjects, is_list=whole)


def _find_placeholder_errors(placeholder: Placeholder, subjects: Mapping[str, Field], *, is_list: bool) -> Iterator[str]:
    path = ".".join(placeholder.path)
    if path not in subjects:
        names = ", ".join(f"${each}" for each in sorted(subjects))
        yield f"${path[:60]} is not available in this rule; use one of {names[:600]}"
    elif (path == ROLES) != is_list:
        yield f"${path} does not fit: _in and _nin need the list ${ROLES}; every other operator needs a single value"


def _resolve_subject(path: str, field: Field, values: Mapping[str, Any]) -> Any:
    value: Any = values
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None or path == ROLES:
        return value
    try:
        return field.convert(value)
    except ValueError:
        return None  # A value of the wrong type counts as absent.


def _evaluate_subjects(condition: Condition, values: Mapping[str, Any]) -> Condition:
    """The condition with the comparisons on `$actor…` and `$request…` evaluated; those on the entity remain."""
    match condition:
        case AllOf(parts):
            return AllOf(tuple(_evaluate_subjects(part, values) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_evaluate_subjects(part, values) for part in parts))
        case Compare(name, operator, _) if name in values:
            is_open = (values[name] is not None or operator == "_null") and conditions.matches(condition, values)
            return AllOf(()) if is_open else Never()
        case _:
            return condition
