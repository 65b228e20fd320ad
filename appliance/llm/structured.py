"""Structured answers: adapts schemas to providers, extracts JSON from answers, and words corrections.  Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from appliance.core.database.db import dump_json
from appliance.core.errors import Detail

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
WRAPPED = "answer"
MOST_PROBLEMS = 20


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether providers accept the schema as it is: they require an object at the top."""
    return schema.get("type") == "object" and not schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}


def wrap(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema in a form providers accept: anything but an object becomes the only member of one."""
    if is_object(schema):
        return schema
    inner = {name: value for name, value in schema.items() if name not in ("$defs", "$schema", "$id")}
    outer = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode accepts the schema: every object requires all its members and allows no others."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    members = schema.get("properties")
    if schema.get("type") == "object" or isinstance(members, Mapping):
        names = set(members) if isinstance(members, Mapping) else set()
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
    inner = members.values() if isinstance(members, Mapping) else ()
    return all(map(is_strict, [*inner, *(value for name, value in schema.items() if name not in ("properties", "enum", "const"))]))


def instructions(schema: Mapping[str, Any]) -> str:
    """The instructions for a model without a mode for structured answers."""
    return f"Answer with one JSON value and nothing else. It must be valid against this JSON Schema:\n{dump_json(dict(schema))}"


def read_json(text: str) -> Any:
    """Parse the JSON in an answer, also inside a code fence; ValueError if there is none, or for NaN and Infinity."""
    stripped = text.strip()
    try:
        return _storable(json.loads(stripped, parse_constant=_refuse))
    except ValueError:
        fenced = _FENCED.search(stripped)
        if fenced is None:
            raise
        return _storable(json.loads(fenced[1], parse_constant=_refuse))


def _storable(value: Any) -> Any:
    """The value with lone surrogates replaced, which UTF-8 cannot encode."""
    text = dump_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def unwrap(value: Any, schema: Mapping[str, Any]) -> Any:
    """Undo `wrap` in an answer; an answer without the wrapping object is returned as it is."""
    if is_object(schema) or not isinstance(value, Mapping) or set(value) != {WRAPPED}:
        return value
    return value[WRAPPED]


def describe(problems: Sequence[Detail]) -> list[str]:
    """Describe the problems, one line each, without the values."""
    return [f"{problem.pointer or '/'}: {problem.message}" for problem in problems[:MOST_PROBLEMS]]


def correction(problems: Sequence[str]) -> str:
    """The message that asks a model to correct an answer that does not match its schema."""
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"That answer does not fit the JSON Schema:\n{lines}\nAnswer again: the whole corrected JSON and nothing else."
