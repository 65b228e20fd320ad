"""The JSON Schema of a process definition, for completion and hints in editors; the parser has the final say."""

from typing import Any

from appliance.processes.triggers.schema import triggers_schema

from .concurrency import BEHAVIOURS, KEY_PATTERN, MOST_AT_ONCE
from .nodes import BLOCK_KINDS, FAILURE_CLASSES, KINDS
from .options import NEVER_KEPT
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
    Shape,
    excluding,
    listed,
    one_of,
    optional,
    shape,
    whole,
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
        "on_failure": optional(shape({"process": SLUG, "steps": STEPS}, minProperties=1)),
        "steps": STEPS,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Process",
        **shape(members, ("id", "steps")),
        "$defs": {"step": _step("id"), "undo": _step(), "steps": listed({"$ref": "#/$defs/step"}, minItems=1)},
    }


def concurrency_schema() -> Shape:
    key = {"type": "string", "pattern": KEY_PATTERN}
    return shape({"limit": whole(1, MOST_AT_ONCE), "key": key, "behaviour": {"enum": list(BEHAVIOURS)}}, ("limit",))


def grants_schema() -> Shape:
    words = listed({"type": "string"})
    actions = {"anyOf": [{"const": "*"}, words]}
    return shape(
        {
            "integrations": {"type": "object", "additionalProperties": actions},
            "datapool": {"type": "object", "additionalProperties": listed({"enum": ["read", "write"]})},
            "documents": listed({"enum": ["read", "write"]}),
            "processes": words,
            "secrets": words,
            "llm": words,
            "human": FLAG,
        }
    )


_CLASSES = listed({"enum": list(FAILURE_CLASSES)})


def retry_schema() -> Shape:
    return {"anyOf": [_policy("max_attempts"), listed(_policy("max_attempts", "classes"))]}


def _policy(*required: str) -> Shape:
    members = {
        "max_attempts": optional(whole(1, 100)),
        "backoff": {"enum": ["constant", "exponential"]},
        "initial": optional(DURATION),
        "max": optional(DURATION),
        "jitter": FLAG,
        "classes": _CLASSES,
    }
    return shape(members, required)


def limits_schema() -> Shape:
    return shape({"time": optional(DURATION), "cpu": optional(DURATION), "memory_mb": optional(whole(8, 512))})


def _step(*required: str) -> Shape:
    options = {
        "id": NAME,
        "name": {"description": "What people read instead of the id."},
        "when": optional(EXPRESSION),
        "input": ANY,
        "timeout": optional(DURATION),
        "limits": limits_schema(),
        "retry": optional(retry_schema()),
        "cache": optional(shape({"ttl": DURATION, "key": ANY}, ("ttl",))),
        "undo": optional({"anyOf": [STEPS, {"$ref": "#/$defs/undo"}]}),
        "continue_on_error": optional({"anyOf": [FLAG, _CLASSES]}),
        "grants": optional(grants_schema()),
        "mock": shape({"output": ANY}, ("output",)),
    }
    rules = [
        {"if": {"required": ["limits"], "properties": {"limits": {"required": ["time"]}}}, "then": excluding("timeout")},
        # Steps that wait have their own timeouts; a plain wait may still have the limits that earlier versions allowed.
        *({"if": {"required": [kind]}, "then": excluding("timeout", "limits")} for kind in ("agent", "human", "process")),
        {
            "if": {"required": ["wait"], "properties": {"wait": {"required": ["event"]}}},
            "then": excluding("timeout", "limits"),
        },
        *({"if": {"required": [kind, "retry"]}, "then": {"properties": {"retry": {"type": "null"}}}} for kind in BLOCK_KINDS),
        *({"if": {"required": [kind, "cache"]}, "then": {"properties": {"cache": {"type": "null"}}}} for kind in NEVER_KEPT),
    ]
    return shape({**options, **kind_schemas()}, required, **one_of(*KINDS), allOf=rules)
