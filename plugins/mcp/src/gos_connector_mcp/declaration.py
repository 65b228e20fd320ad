"""What the connector declares: its settings, and the action that shows all a server serves."""

from typing import Any

from appliance.connectors.contract import Action, auth_settings
from gos_connector_mcp.session import REVISIONS
from gos_connector_mcp.tools import NAME

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_HEADER: Schema = {"type": "string", "pattern": "^[^\\r\\n]*$"}
_ALLOWED: Schema = {
    "type": "object",
    "required": ["pin"],
    "additionalProperties": False,
    "properties": {
        "pin": {
            "type": "string",
            "pattern": "^sha256:[0-9a-f]{64}([.][0-9a-f]{10})*$",
            "maxLength": 200,
            "title": "Pin",
            "description": "The digest of the description you read and allow, as list_tools shows it.",
        },
        "effect": {
            "enum": ["read", "idempotent", "write"],
            "default": "write",
            "title": "Effect",
            "description": "Declare read only where you know it: what the server says of it is a hint.",
        },
    },
}

SETTINGS: Schema = {
    "type": "object",
    "required": ["url"],
    "additionalProperties": False,
    "properties": {
        "url": {
            "type": "string",
            "pattern": "^https?://[^/?#@\\\\\\s]+(/[^#\\\\\\s]*)?$",
            "title": "Address",
            "description": "Where the server speaks Streamable HTTP: https://mcp.example.com/mcp",
            "secret_target": True,
        },
        "auth": auth_settings("none", "bearer", "basic", "header", "oauth2"),
        "headers": {"type": "object", "additionalProperties": _HEADER, "title": "Headers of every call"},
        "protocol": {
            "enum": ["auto", *REVISIONS],
            "default": "auto",
            "title": "Revision of the protocol",
            "description": "auto asks the server, the newest first.",
        },
        "allowed_tools": {
            "type": "object",
            "propertyNames": {"pattern": NAME},
            "additionalProperties": _ALLOWED,
            "maxProperties": 500,
            "title": "Allowed tools",
            "description": 'Nothing is allowed by default. {"<tool>": {"pin": "sha256:…"}}; list_tools shows tools and pins.',
        },
        "binaries": {
            "enum": ["leave_out", "documents"],
            "default": "leave_out",
            "title": "Images, audio and other bytes",
            "description": "documents keeps them as documents of the tenant, where the caller may write these.",
        },
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"},
    },
}

_SERVED: Schema = {
    "type": "object",
    "required": ["name", "state", "summary", "pin"],
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "state": {"enum": ["allowed", "not_allowed", "changed", "unusable", "missing"]},
        "summary": _TEXT,
        "description": {**_TEXT, "description": "As the server says it; what cannot be seen is written as its code point."},
        "pin": {**_TEXT, "description": "What allowed_tools needs to allow this very description."},
        "problem": {**_TEXT, "description": "Why it is not offered, and what to do."},
        "action": {**_TEXT, "description": "The action it is, or would be."},
        "effect": {"enum": ["read", "idempotent", "write"]},
        "hints": {
            "type": "object",
            "additionalProperties": {"type": "boolean"},
            "description": "What the server claims; nothing rests on it.",
        },
        "input": {"type": "object", "description": "The schema of its arguments."},
    },
}

LIST_TOOLS = Action(
    "list_tools",
    "List what the server serves: each tool with its description, its pin, and whether it is allowed",
    {"type": "object", "additionalProperties": False, "properties": {}},
    {
        "type": "object",
        "required": ["server", "tools"],
        "additionalProperties": False,
        "properties": {
            "server": {
                "type": "object",
                "required": ["name", "version", "revision"],
                "additionalProperties": False,
                "properties": {"name": _TEXT, "version": _TEXT, "revision": _TEXT, "instructions": _TEXT},
            },
            "tools": {"type": "array", "items": _SERVED},
        },
    },
    "read",
)
