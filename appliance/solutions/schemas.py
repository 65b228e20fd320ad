"""JSON Schemas of the files of a solution folder, for hints in editors; the parsers have the final say."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.agents import ERROR_CODES, agent_schema
from appliance.connectors.declarative import connector_schema
from appliance.connectors.registry import Installed, Registry
from appliance.datapool import (
    ACCESS_VERBS,
    FIELD_TYPES,
    MAX_FIELDS,
    MAX_INDEX_FIELDS,
    MAX_INDEXES,
    MAX_SCALE,
    RESERVED_FIELDS,
    UNSUPPORTED_TYPES,
)
from appliance.governance.policies import policy_schema
from appliance.integrations import MAX_CONCURRENCY
from appliance.processes.definitions import (
    FLAG,
    NAME,
    SLUG,
    TEXT,
    JsonSchema,
    integer,
    list_of,
    object_schema,
    one_of,
    optional,
    process_schema,
    without,
)
from appliance.processes.rehearsal import ERROR_MEMBERS as MOCK_ERROR_MEMBERS
from appliance.processes.rehearsal import MOST_CASES
from appliance.solutions.testing.agent_cases import AGENT_STATUSES, ORDERS
from appliance.solutions.testing.cases import CALL_MEMBERS, ERROR_MEMBERS, STATUSES, STEP_MEMBERS

_ANYTHING: JsonSchema = {}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DESCRIPTION: JsonSchema = {"type": "string", "maxLength": 2000}
_REFERENCE: JsonSchema = {
    "type": "string", "pattern": r"^=\s*secrets\.[A-Za-z_]\w{0,62}\s*$", "examples": ["= secrets.token"],
}  # fmt: skip
_MIXED: JsonSchema = {"type": "string", "pattern": r"\{\{\s*secrets\.[A-Za-z_]\w{0,62}\s*\}\}"}
_SEALED = object_schema({"sealed": {"const": True}}, ("sealed",))


def schema_files(registry: Registry) -> dict[str, JsonSchema]:
    """Every schema by its file name."""
    makers: Mapping[str, Callable[[], JsonSchema]] = {
        "process": process_schema,
        "solution": _solution,
        "collection": _collection,
        "integration": lambda: _integration(registry),
        "rule-tests": _rule_tests,
        "cases": _cases,
        "connector": connector_schema,
        "policy": policy_schema,
        "agent": agent_schema,
    }
    return {f"{name}.schema.json": {"$schema": _DIALECT, "title": name, **make()} for name, make in makers.items()}


def _solution() -> JsonSchema:
    names = list_of({"type": "string"})
    secrets = list_of({"type": "string", "pattern": NAME["pattern"]})
    needs = object_schema({"connectors": optional(names), "secrets": optional(secrets)})
    return object_schema({"name": SLUG, "description": _DESCRIPTION, "needs": optional(needs)}, ("name",))


# -- collections


def _collection() -> JsonSchema:
    index = object_schema(
        {"fields": list_of({"type": "string"}, minItems=1, maxItems=MAX_INDEX_FIELDS), "unique": FLAG}, ("fields",)
    )
    chosen = {"type": "object", "minProperties": 1, "description": "A filter over the record, with $actor and $request."}
    rule = {"anyOf": [{"enum": ["deny", "allow"]}, chosen]}
    members = {
        "name": {"type": "string", "pattern": "^[a-z]([a-z0-9_-]{0,61}[a-z0-9])?$"},
        "description": _DESCRIPTION,
        "fields": list_of(_field(), minItems=1, maxItems=MAX_FIELDS),
        "indexes": list_of(index, maxItems=MAX_INDEXES),
        "search": list_of({"type": "string"}),
        "access": object_schema(dict.fromkeys(ACCESS_VERBS, rule)),
    }
    return object_schema(members, ("fields",))


def _field() -> JsonSchema:
    name = {**NAME, "pattern": "^[A-Za-z][A-Za-z0-9_]{0,62}$"}
    length = optional(integer(0, 1 << 20))
    text = {"type": "string", "minLength": 1}
    settings: JsonSchema = {
        "min_length": length,
        "max_length": length,
        "min": {"type": ["number", "string", "null"]},
        "max": {"type": ["number", "string", "null"]},
        "scale": optional(integer(0, MAX_SCALE)),
        "options": list_of(text, minItems=1, maxItems=500, uniqueItems=True),
        "collection": {"type": "string"},
    }
    members: JsonSchema = {
        "name": {**name, "not": {"enum": list(RESERVED_FIELDS)}},
        "id": {"anyOf": [name, {"enum": [None, ""]}]},
        "type": {"enum": sorted(FIELD_TYPES.keys() - UNSUPPORTED_TYPES.keys())},
        "required": FLAG,
        "unique": FLAG,
        "default": {"description": "The value of an entity that is created without one; $now for a date or datetime."},
        "description": _DESCRIPTION,
    }
    return object_schema({**members, **settings}, ("name", "type"), allOf=[_of_type(kind, set(settings)) for kind in FIELD_TYPES])


def _of_type(kind: str, settings: set[str]) -> JsonSchema:
    """A field of this type may only have the settings of its type."""
    then: JsonSchema = without(*sorted(settings - FIELD_TYPES[kind].options))
    needed = [name for name in ("options", "collection") if name in FIELD_TYPES[kind].options]
    if needed:
        then["required"] = needed
    if kind == "json":
        then["properties"] = {"unique": {"const": False}}
    return {"if": {"properties": {"type": {"const": kind}}, "required": ["type"]}, "then": then}


# -- integrations


def _integration(registry: Registry) -> JsonSchema:
    members = {
        "name": optional({"type": "string", "maxLength": 2000}), "connector": TEXT, "settings": {"type": ["object", "null"]},
        "concurrency": {"type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY},
    }  # fmt: skip
    rules = [_of_connector(installed) for _, installed in sorted(registry.installed.items())]
    return object_schema(members, ("connector",)) | ({"allOf": rules} if rules else {})


def _of_connector(installed: Installed) -> JsonSchema:
    settings = to_file_schema(installed.connector.settings_schema)
    is_it = {"properties": {"connector": {"const": installed.connector.name}}, "required": ["connector"]}
    return {"if": is_it, "then": {"properties": {"settings": optional(settings)}}}


def to_file_schema(part: Any) -> Any:
    """A connector's settings schema adapted to files: secrets are references, and other values may contain references."""
    if not isinstance(part, Mapping):
        return part
    if part.get("secret") is True:
        annotations = {name: part[name] for name in ("title", "description") if name in part}
        return {**annotations, "anyOf": [_REFERENCE, _MIXED, _SEALED]}
    schema = dict(part)
    for name in ("items", "additionalProperties"):
        if name in part:
            schema[name] = to_file_schema(part[name])
    if "properties" in part:
        schema["properties"] = {name: to_file_schema(inner) for name, inner in part["properties"].items()}
    is_whole = (
        "properties" in part or part.get("type") in ("object", "array") or isinstance(part.get("additionalProperties"), Mapping)
    )
    annotations = {name: schema.pop(name) for name in ("title", "description", "default") if name in schema and not is_whole}
    return schema if is_whole else {**annotations, "anyOf": [schema, _REFERENCE, _MIXED]}


# -- tests


def _rule_tests() -> JsonSchema:
    members = {
        "name": {"type": "string"},
        "input": {"type": "object"},
        "output": {"description": "The expected output; members that are not listed may have any value."},
        "error": {"type": "string", "description": "A part of the expected error message."},
    }
    case = object_schema(members, ("input",), **one_of("output", "error"))
    return object_schema({"cases": list_of(case, minItems=1, maxItems=MOST_CASES)}, ("cases",))


def _cases() -> JsonSchema:
    objects = {"type": "object", "additionalProperties": list_of({"type": "object"})}
    mock = {"anyOf": [object_schema({"calls": {"type": "object", "additionalProperties": _mock()}}, ("calls",)), _mock()]}
    mocks = {"type": "object", "additionalProperties": mock}
    members = {
        "name": {"type": "string"},
        "process": {"type": "string"},
        "step": {"type": ["string", "null"], "description": "The id or path of the step to test; without it the whole process."},
        "input": {"type": "object"},
        "input_file": {"type": "string", "examples": ["sample/input.json"]},
        "context": object_schema({"steps": {"type": "object"}, "items": {"type": "object"}}),
        "mocks": mocks,
        "records": objects,
        "expect": _expect(),
    }
    case = object_schema(members, (), **at_most_one("input", "input_file"))
    of_process = {"process": {"type": "string"}, "records": objects, "mocks": mocks, "cases": list_of(case, minItems=1)}
    return {"anyOf": [object_schema(of_process, ("cases",)), _agent_cases(objects)]}


def _agent_cases(objects: JsonSchema) -> JsonSchema:
    error = object_schema({"code": {"enum": list(ERROR_CODES)}, "message": {"type": "string"}}, ("code",))
    outputs = {"output": _ANYTHING, "outputs": list_of(_ANYTHING, minItems=1), "error": error}
    answer = object_schema({"when": {"type": "object"}, **outputs}) | one_of(*outputs)
    mocks = {"type": "object", "additionalProperties": {"anyOf": [answer, list_of(answer, minItems=1)]}}
    calls = list_of(object_schema({"tool": {"type": "string"}, "input": {"type": "object"}}, ("tool",)))
    expected: JsonSchema = {
        "status": {"enum": list(AGENT_STATUSES)},
        "error": object_schema({"code": {"type": "string"}, "message": {"type": "string"}}),
        "output": _ANYTHING, "output_schema": {"type": "object"}, "output_where": {"type": "object"}, "calls": calls,
        "order": {"enum": list(ORDERS)}, "never": calls, "most_turns": integer(1, 1_000),
    }  # fmt: skip
    agent: JsonSchema = {"type": "string", "description": "The agent to test; needs --tenant."}
    members: JsonSchema = {
        "name": {"type": "string"}, "agent": agent, "input": {"type": ["object", "string"]}, "input_file": {"type": "string"},
        "mocks": mocks, "records": objects, "expect": object_schema(expected),
    }  # fmt: skip
    case = object_schema(members, (), **at_most_one("input", "input_file"))
    return object_schema({"agent": agent, "records": objects, "mocks": mocks, "cases": list_of(case, minItems=1)}, ("cases",))


def _mock() -> JsonSchema:
    text: JsonSchema = {"type": "string"}
    error = dict.fromkeys(MOCK_ERROR_MEMBERS, text) | {"retryable": FLAG}
    return object_schema({"output": _ANYTHING, "outputs": list_of(_ANYTHING, minItems=1), "error": object_schema(error)}) | {
        "maxProperties": 1
    }


def _expect() -> JsonSchema:
    error = object_schema(dict.fromkeys(ERROR_MEMBERS, _ANYTHING))
    step = object_schema({**dict.fromkeys(STEP_MEMBERS, _ANYTHING), "times": {"type": "integer"}, "error": error})
    calls = {"anyOf": [list_of(object_schema(dict.fromkeys(CALL_MEMBERS, _ANYTHING))), {"type": "null"}]}
    members = {
        "status": {"enum": list(STATUSES)}, "output": _ANYTHING, "error": error,
        "steps": {"type": "object", "additionalProperties": step}, "effects": calls, "calls": calls,
    }  # fmt: skip
    return object_schema(members)


def at_most_one(one: str, other: str) -> JsonSchema:
    """At most one of these members may be present."""
    return {"not": {"required": [one, other]}}
