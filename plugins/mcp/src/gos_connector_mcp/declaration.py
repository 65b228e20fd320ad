"""What the connector declares: its settings, and the action that lists a server's tools."""

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
            "description": "The digest of the description you allow, as shown by list_tools.",
        },
        "effect": {
            "enum": ["read", "idempotent", "write"],
            "default": "write",
            "title": "Effect",
            "description": "Choose read only if you are sure: the server's own statement is just a hint.",
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
            "description": "The server's endpoint for Streamable HTTP, for example https://mcp.example.com/mcp",
            "secret_target": True,
        },
        "auth": auth_settings("none", "bearer", "basic", "header", "oauth2"),
        "headers": {"type": "object", "additionalProperties": _HEADER, "title": "Headers of every call"},
        "protocol": {
            "enum": ["auto", *REVISIONS],
            "default": "auto",
            "title": "Protocol revision",
            "description": "auto negotiates with the server, newest first.",
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
            "description": "documents stores them as documents of the tenant, if the caller may create documents.",
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
        "description": {**_TEXT, "description": "The server's description; invisible characters are written as code points."},
        "pin": {**_TEXT, "description": "The pin to set under allowed_tools to allow this description."},
        "problem": {**_TEXT, "description": "Why the tool is not offered, and what to do."},
        "action": {**_TEXT, "description": "The name of the tool's action."},
        "effect": {"enum": ["read", "idempotent", "write"]},
        "hints": {
            "type": "object",
            "additionalProperties": {"type": "boolean"},
            "description": "What the server claims about the tool; informational only.",
        },
        "input": {"type": "object", "description": "The schema of its arguments."},
    },
}

LIST_TOOLS = Action(
    "list_tools",
    "List the server's tools, each with its description, its pin, and whether it is allowed",
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
