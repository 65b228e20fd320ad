"""Maps a browser's request to the input of a process, as in `{order: "$body", by: "$visitor.email"}`. Pure functions."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import ValidationFailed
from appliance.webapps.access.visitors import ANONYMOUS, Visitor

DEEPEST = 8
MOST_MEMBERS = 100
VISITOR = ("id", "email", "kind", "roles")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_MISSING = object()
_TRUTHS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")


class Text(str):
    """A value from a URL or a form, where every value is text; it is converted to the type that the process expects."""

    __slots__ = ()


@dataclass(frozen=True)
class RequestData:
    """The parts of a request that a mapping can use; `body` is None when there was none."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    visitor: Visitor = ANONYMOUS


def find_problem(mapping: Any, names: Sequence[str], *, with_body: bool) -> tuple[str, str] | None:
    """What is wrong with a mapping, as (JSON pointer, message), or None; `names` are the placeholders of the path."""
    if mapping is None:
        return None
    if isinstance(mapping, str) and mapping.startswith("$") and not mapping.startswith("$$"):
        return _check_value(mapping, "", names, with_body)
    if not isinstance(mapping, Mapping):
        return "", 'input must be an object such as {name: "$body.name"}, or "$body"'
    return _check_value(mapping, "", names, with_body)


def _check_value(value: Any, at: str, names: Sequence[str], with_body: bool) -> tuple[str, str] | None:
    if at.count("/") > DEEPEST:
        return at, f"input can be nested at most {DEEPEST} levels deep"
    if isinstance(value, Mapping | list | tuple):
        members = value.items() if isinstance(value, Mapping) else enumerate(value)
        if len(value) > MOST_MEMBERS:
            return at, f"input can have at most {MOST_MEMBERS} fields per object"
        problems = (_check_value(value, f"{at}/{str(name)[:60]}", names, with_body) for name, value in members)
        return next((wrong for wrong in problems if wrong), None)
    if isinstance(value, float) and not math.isfinite(value):
        return at, "this number is not valid in JSON"
    if value is not None and not isinstance(value, str | int | float):
        return at, "values must be JSON"
    if not isinstance(value, str) or not value.startswith("$") or value.startswith("$$"):
        return None
    problem = _check_expression(value, names, with_body)
    return (at, problem) if problem else None


def _check_expression(text: str, names: Sequence[str], with_body: bool) -> str | None:
    source, *rest = text[1:].split(".")
    if any(not _NAME.fullmatch(name) for name in rest) or len(rest) > DEEPEST:
        return f"{text[:80]!r} is not valid; write $body.name, or $$ for text that begins with $"
    if source == "body":
        return None if with_body else "$body is not available: GET and DELETE have no body"
    if source == "path":
        is_known = len(rest) == 1 and rest[0] in names
        return (
            None
            if is_known
            else f"{text[:80]!r} is not a placeholder of the path, which has {', '.join(f'$path.{n}' for n in names) or 'none'}"
        )
    if source == "query":
        return None if len(rest) <= 1 else "a query parameter has no fields"
    if source == "visitor":
        return (
            None
            if len(rest) == 1 and rest[0] in VISITOR
            else f"available fields of the visitor are {', '.join(f'$visitor.{n}' for n in VISITOR)}"
        )
    return f"{text[:80]!r} is not valid; use $body, $path, $query or $visitor, or $$ for text that begins with $"


def map_input(mapping: Any, request: RequestData, schema: Any = None) -> dict[str, Any]:
    """Build the input of the process; missing values are left out. Without a mapping, the input is the body (or the query, if
    there is no body) plus the placeholders of the path.

    `schema` is the input schema of the process; text from forms and URLs is converted to its types where possible.
    ValidationFailed unless the result is an object.
    """
    if mapping is None:
        data = request.query if request.body is None else request.body
        result = {**data, **request.path} if isinstance(data, Mapping) else data
    else:
        result = _fill(mapping, request)
    result = {} if result is _MISSING else convert_texts(result, schema)
    if not isinstance(result, dict):
        raise ValidationFailed("the body must be a JSON object", pointer="")
    return result


def _fill(template: Any, request: RequestData) -> Any:
    if isinstance(template, Mapping):
        pairs = ((str(name), _fill(value, request)) for name, value in template.items())
        return {name: value for name, value in pairs if value is not _MISSING}
    if isinstance(template, list | tuple):
        return [value for value in (_fill(each, request) for each in template) if value is not _MISSING]
    if not isinstance(template, str) or not template.startswith("$"):
        return template
    return template[1:] if template.startswith("$$") else _look_up(template, request)


def _look_up(expression: str, request: RequestData) -> Any:
    source, *rest = expression[1:].split(".")
    value: Any = getattr(request, source)
    if source == "visitor":
        return getattr(request.visitor, rest[0]) or _MISSING
    for name in rest:
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return _MISSING if value is None and not rest else value


def convert_texts(value: Any, schema: Any) -> Any:
    """Convert every `Text` in the value to the type in the schema; an empty one is left out unless the schema wants text."""
    schema_object = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, Mapping):
        members = schema_object.get("properties")
        properties = members if isinstance(members, Mapping) else {}
        pairs = ((name, convert_texts(each, properties.get(name))) for name, each in value.items())
        return {str(name): each for name, each in pairs if each is not _MISSING}
    if isinstance(value, list | tuple):
        pieces = (convert_texts(each, schema_object.get("items")) for each in value)
        return [each for each in pieces if each is not _MISSING]
    if not isinstance(value, Text):
        return value
    if schema_object.get("type") == "array":  # a list field of which only one value was selected
        return [each for each in [convert_texts(value, schema_object.get("items"))] if each is not _MISSING]
    return _convert(str(value), schema_object.get("type"))


def _convert(text: str, kind: Any) -> Any:
    if kind in ("integer", "number", "boolean") and not text.strip():
        return _MISSING
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    if kind == "boolean" and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    return text
