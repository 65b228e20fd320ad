"""Structured answers: the schema as providers take it, the JSON in what they say, what to say about a wrong one.  Pure."""

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
    """Whether providers take the schema as it is: they want an object at the top."""
    return schema.get("type") == "object" and not schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}


def wrap(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema as providers take it; anything else than an object becomes the only member of one."""
    if is_object(schema):
        return schema
    inner = {name: value for name, value in schema.items() if name not in ("$defs", "$schema", "$id")}
    around = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return around | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema: every object lists all its members as required, and has no others."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    members = schema.get("properties")
    if schema.get("type") == "object" or isinstance(members, Mapping):
        listed = set(members) if isinstance(members, Mapping) else set()
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != listed:
            return False
    inner = members.values() if isinstance(members, Mapping) else ()
    return all(map(is_strict, [*inner, *(value for name, value in schema.items() if name not in ("properties", "enum", "const"))]))


def instructions(schema: Mapping[str, Any]) -> str:
    """What a model is told that has no mode for this."""
    return f"Answer with one JSON value and nothing else. It must be valid against this JSON Schema:\n{dump_json(dict(schema))}"


def read_json(text: str) -> Any:
    """The JSON in an answer, also where it stands in a fence; ValueError when there is none.  NaN and Infinity are none."""
    stripped = text.strip()
    try:
        return _storable(json.loads(stripped, parse_constant=_refuse))
    except ValueError:
        fenced = _FENCED.search(stripped)
        if fenced is None:
            raise
        return _storable(json.loads(fenced[1], parse_constant=_refuse))


def _storable(value: Any) -> Any:
    """The same JSON without halves of surrogate pairs, which no UTF-8 text can hold."""
    text = dump_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def unwrap(value: Any, schema: Mapping[str, Any]) -> Any:
    """What stands for the caller's own schema in the answer; a model that left out the wrapping is understood."""
    if is_object(schema) or not isinstance(value, Mapping) or set(value) != {WRAPPED}:
        return value
    return value[WRAPPED]


def describe(problems: Sequence[Detail]) -> list[str]:
    """The problems, one line each, of which the values are no part."""
    return [f"{problem.pointer or '/'}: {problem.message}" for problem in problems[:MOST_PROBLEMS]]


def correction(problems: Sequence[str]) -> str:
    """What a model is told about an answer that does not fit."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"That answer does not fit the JSON Schema:\n{listed}\nAnswer again: the whole corrected JSON and nothing else."
