"""The JSON Schema of a process definition, for editors; the parser decides, this page helps."""

from typing import Any

from appliance.governance.questions import KINDS as HUMAN_KINDS

from .kinds import ON_TIMEOUT
from .nodes import KINDS, MOST_BRANCHES, RETRY_CLASSES

_EXPRESSION = {"type": "string", "pattern": "^=", "description": "An expression: JavaScript after the equals sign."}
_DURATION = {"type": "string", "examples": ["500ms", "30s", "10m", "48h", "90d"]}
_ANY = {"description": "Any value; texts that begin with = are expressions."}


def process_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `process.yaml`."""
    steps = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Process",
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "steps"],
        "properties": {
            "id": {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63},
            "name": {"type": "string"},
            "description": {"type": "string"},
            "input": {"type": "object", "description": "JSON Schema 2020-12 of the execution's input."},
            "output": _ANY,
            "timeout": _DURATION,
            "grants": _grants(),
            "steps": steps,
        },
        "$defs": {"step": _step(), "steps": steps},
    }


def _grants() -> dict[str, Any]:
    actions = {"oneOf": [{"const": "*"}, {"type": "array", "items": {"type": "string"}}]}
    access = {"type": "array", "items": {"enum": ["read", "write"]}}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "integrations": {"type": "object", "additionalProperties": actions},
            "datapool": {"type": "object", "additionalProperties": access},
            "processes": {"type": "array", "items": {"type": "string"}},
            "secrets": {"type": "array", "items": {"type": "string"}},
            "human": {"type": "boolean"},
        },
    }


def _step() -> dict[str, Any]:
    kinds = _kinds()
    return {
        "type": "object",
        "required": ["id"],
        "additionalProperties": False,
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"},
            "name": {"type": "string"},
            "when": _EXPRESSION,
            "input": _ANY,
            "timeout": _DURATION,
            "limits": _object(
                {"time": _DURATION, "cpu": _DURATION, "memory_mb": {"type": "integer", "minimum": 8, "maximum": 512}}
            ),
            "retry": _object(
                {
                    "max_attempts": {"type": "integer", "minimum": 1, "maximum": 100},
                    "backoff": {"enum": ["constant", "exponential"]},
                    "initial": _DURATION,
                    "max": _DURATION,
                    "jitter": {"type": "boolean"},
                    "classes": {"type": "array", "items": {"enum": list(RETRY_CLASSES)}},
                },
                ["max_attempts"],
            ),
            "grants": _grants(),
            **kinds,
        },
    }


def _kinds() -> dict[str, Any]:
    text = {"type": "string"}
    inner = {"$ref": "#/$defs/steps"}
    return {
        "rule": _object({"expression": _EXPRESSION, "decision": {"type": ["string", "object"]}, "input": _ANY}),
        "code": _object({"language": {"enum": ["typescript", "javascript", "php"]}, "file": text, "source": text}, ["language"]),
        "integration": _object({"use": text, "action": text, "input": _ANY}, ["use", "action"]),
        "datapool": _object(
            {"collection": text, **dict.fromkeys(("create", "update", "upsert", "delete", "find", "query", "batch"), _ANY)}
        ),
        "human": _object(
            {
                "kind": {"enum": list(HUMAN_KINDS)},
                "title": text,
                "reason": text,
                "details": _ANY,
                "schema": {"type": ["object", "string"], "description": "JSON Schema of the answer to an input."},
                "choices": {"type": ["array", "string"], "items": text},
                "approvers": {"type": ["array", "string"], "items": text, "examples": [["role:operator", "user:ann"]]},
                "expires": _DURATION,
                "on_timeout": {"enum": list(ON_TIMEOUT)},
            },
            ["kind", "title"],
        ),
        "process": _object({"use": text, "input": _ANY, "wait": {"type": "boolean"}}, ["use"]),
        "wait": _object({"for": text, "until": text, "event": text, "timeout": text}),
        "stop": _object({"output": _ANY}),
        "branch": {"type": "array", "minItems": 1, "items": _object({"when": _EXPRESSION, "steps": inner}, ["steps"])},
        "parallel": {"type": "object", "minProperties": 1, "maxProperties": MOST_BRANCHES, "additionalProperties": inner},
        "for_each": _object(
            {
                "items": _ANY,
                "as": text,
                "concurrency": {"type": "integer", "minimum": 1, "maximum": 50},
                "steps": inner,
                "collect": _ANY,
            },
            ["items", "steps"],
        ),
    }


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**shape, "required": required} if required else shape
