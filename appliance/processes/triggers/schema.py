"""The JSON Schema of `triggers`, for editors; the parser decides, this page helps."""

from typing import Any

from .kinds import DATA_EVENTS, ENDS, MOST_MISSED, MOST_TRIGGERS, ON_MISSED, PRESETS, SIGNED

_TEXT = {"type": "string"}
_INPUT = {
    "type": ["object", "string"],
    "description": "The execution's input, made of `trigger` (what happened); by default the event itself, of a schedule {}.",
}
_EVENTS = {"type": "array", "minItems": 1, "items": {"enum": list(DATA_EVENTS)}}
_SECRET = {"type": "string", "pattern": r"^=\s*secrets\.[A-Za-z_]", "description": "A secret of the tenant: = secrets.<name>."}


def triggers_schema() -> dict[str, Any]:
    """The list of triggers, each an object with one kind."""
    kinds = _kinds()
    return {
        "type": "array",
        "maxItems": MOST_TRIGGERS,
        "items": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"id": {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}, "schedule": kinds["schedule"]},
            "required": ["schedule"],
        },
    }


def _kinds() -> dict[str, Any]:
    several = {"oneOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]}
    return {
        "schedule": _object(
            ["cron"],
            cron={"type": "string", "examples": ["0 6 * * 1-5"]},
            timezone={"type": "string", "default": "UTC", "examples": ["Europe/Berlin"]},
            on_missed={"enum": list(ON_MISSED), "default": "run_once"},
            max_missed={"type": "integer", "minimum": 1, "maximum": MOST_MISSED, "default": 100},
        ),
        "webhook": _object(["path", "verify"], path=_TEXT, verify={"oneOf": _verifications()}),
        "integration": _object(
            ["use", "trigger"], use=_TEXT, trigger=_TEXT, every={"type": "string", "default": "1m"}, query={"type": "object"}
        ),
        "datapool": _object(["collection"], collection=_TEXT, events=_EVENTS, filter={"type": "object"}),
        "process": _object(["id"], id=several, on={"type": "array", "minItems": 1, "items": {"enum": list(ENDS)}}),
        "document": _object([], events=_EVENTS, filter={"type": "object"}),
    }


def _verifications() -> list[dict[str, Any]]:
    presets = {"kind": {"enum": ["standard-webhooks", *PRESETS]}, "secret": _SECRET}
    hmac = {
        "kind": {"const": "hmac"},
        "secret": _SECRET,
        "header": _TEXT,
        "algorithm": {"enum": ["sha256", "sha512", "sha1"], "default": "sha256"},
        "encoding": {"enum": ["hex", "base64"], "default": "hex"},
        "prefix": {"type": "string", "default": ""},
        "signed": {"enum": list(SIGNED), "default": "body"},
        "timestamp_header": _TEXT,
        "delivery_header": _TEXT,
    }
    header = {"kind": {"const": "header"}, "secret": _SECRET, "header": _TEXT, "delivery_header": _TEXT}
    return [
        _plain(["kind", "secret"], presets),
        _plain(["kind", "secret", "header"], hmac),
        _plain(["kind", "secret", "header"], header),
        _plain(["kind"], {"kind": {"const": "none"}, "delivery_header": _TEXT}),
    ]


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return _plain(required, {**properties, "input": _INPUT})


def _plain(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
