"""The JSON Schema of a process definition, for completion and hints in editors; the parser has the final say."""

from typing import Any

from appliance.processes.triggers.schema import triggers_schema

from .concurrency import BEHAVIOURS, KEY_PATTERN, MAX_LIMIT
from .nodes import BLOCK_KINDS, FAILURE_CLASSES, KINDS
from .options import NEVER_CACHED
from .schema_kinds import kind_schemas
from .schema_parts import (
    ANY,
    DURATION,
    EXPRESSION,
    FLAG,
    NAME,
    SLUG,
    STEPS,
    TEXT,
    JsonSchema,
    integer,
    list_of,
    object_schema,
    one_of,
    optional,
    without,
)


def process_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `process.yaml`."""
    members = {
        "id": SLUG,
        "name": optional(TEXT),
        "description": optional(TEXT),
        "input": {"type": ["object", "null"], "description": "JSON Schema 2020-12 of the execution's input."},
        "output": ANY,
        "timeout": optional(DURATION),
        "grants": optional(grants_schema()),
        "triggers": optional(triggers_schema()),
        "concurrency": optional(concurrency_schema()),
        "expires": optional(DURATION),
        "on_failure": optional(object_schema({"process": SLUG, "steps": STEPS}, minProperties=1)),
        "steps": STEPS,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Process",
        **object_schema(members, ("id", "steps")),
        "$defs": {"step": _step("id"), "undo": _step(), "steps": list_of({"$ref": "#/$defs/step"}, minItems=1)},
    }


def concurrency_schema() -> JsonSchema:
    key = {"type": "string", "pattern": KEY_PATTERN}
    return object_schema({"limit": integer(1, MAX_LIMIT), "key": key, "behaviour": {"enum": list(BEHAVIOURS)}}, ("limit",))


def grants_schema() -> JsonSchema:
    words = list_of({"type": "string"})
    actions = {"anyOf": [{"const": "*"}, words]}
    return object_schema(
        {
            "integrations": {"type": "object", "additionalProperties": actions},
            "datapool": {"type": "object", "additionalProperties": list_of({"enum": ["read", "write"]})},
            "documents": list_of({"enum": ["read", "write"]}),
            "processes": words,
            "secrets": words,
            "llm": words,
            "human": FLAG,
        }
    )


_CLASSES = list_of({"enum": list(FAILURE_CLASSES)})


def retry_schema() -> JsonSchema:
    return {"anyOf": [_policy("max_attempts"), list_of(_policy("max_attempts", "classes"))]}


def _policy(*required: str) -> JsonSchema:
    members = {
        "max_attempts": optional(integer(1, 100)),
        "backoff": {"enum": ["constant", "exponential"]},
        "initial": optional(DURATION),
        "max": optional(DURATION),
        "jitter": FLAG,
        "classes": _CLASSES,
    }
    return object_schema(members, required)


def limits_schema() -> JsonSchema:
    return object_schema({"time": optional(DURATION), "cpu": optional(DURATION), "memory_mb": optional(integer(8, 512))})


def _step(*required: str) -> JsonSchema:
    options = {
        "id": NAME,
        "name": {"description": "What people read instead of the id."},
        "when": optional(EXPRESSION),
        "input": ANY,
        "timeout": optional(DURATION),
        "limits": limits_schema(),
        "retry": optional(retry_schema()),
        "cache": optional(object_schema({"ttl": DURATION, "key": ANY}, ("ttl",))),
        "undo": optional({"anyOf": [STEPS, {"$ref": "#/$defs/undo"}]}),
        "continue_on_error": optional({"anyOf": [FLAG, _CLASSES]}),
        "grants": optional(grants_schema()),
        "mock": object_schema({"output": ANY}, ("output",)),
    }
    rules = [
        {"if": {"required": ["limits"], "properties": {"limits": {"required": ["time"]}}}, "then": without("timeout")},
        # Steps that wait have their own timeouts; a plain wait may still have the limits that earlier versions allowed.
        *({"if": {"required": [kind]}, "then": without("timeout", "limits")} for kind in ("agent", "human", "process")),
        {
            "if": {"required": ["wait"], "properties": {"wait": {"required": ["event"]}}},
            "then": without("timeout", "limits"),
        },
        *({"if": {"required": [kind, "retry"]}, "then": {"properties": {"retry": {"type": "null"}}}} for kind in BLOCK_KINDS),
        *({"if": {"required": [kind, "cache"]}, "then": {"properties": {"cache": {"type": "null"}}}} for kind in NEVER_CACHED),
    ]
    return object_schema({**options, **kind_schemas()}, required, **one_of(*KINDS), allOf=rules)
