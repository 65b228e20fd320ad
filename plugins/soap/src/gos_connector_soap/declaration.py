"""The settings and actions of the connector as JSON Schemas."""

from typing import Any

from appliance.connectors.contract import Action

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_SECRET: Schema = {"type": "string", "secret": True}
_ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^#\\]*)?$", "maxLength": 2_000, "secret_target": True}
_NAME: Schema = {"type": "string", "pattern": r"^[^\s{}]{1,200}$"}


def _needs(kind: str, *members: str) -> Schema:
    return {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"required": list(members)}}


def _object(required: list[str], **properties: Any) -> Schema:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


SETTINGS: Schema = _object(
    ["wsdl_url"],
    wsdl_url={**_ADDRESS, "title": "Address of the WSDL", "description": "Often the service's address followed by ?wsdl"},
    address={**_ADDRESS, "title": "Address of the service", "description": "Default: the address in the WSDL"},
    port={**_NAME, "title": "Port", "description": "The port in the WSDL; default: the first that uses SOAP"},
    auth={
        "type": "object",
        "title": "Credentials",
        "required": ["kind"],
        "additionalProperties": False,
        "properties": {
            "kind": {"enum": ["none", "basic", "bearer", "header"], "title": "Kind"},
            "username": {**_TEXT, "title": "User name", "description": "For basic."},
            "password": {**_SECRET, "title": "Password", "description": "For basic."},
            "token": {**_SECRET, "title": "Token", "description": "For bearer."},
            "name": {**_TEXT, "title": "Name", "description": "Of the header that carries the key."},
            "value": {**_SECRET, "title": "Key", "description": "For header."},
        },
        "allOf": [_needs("basic", "username", "password"), _needs("bearer", "token"), _needs("header", "name", "value")],
    },
    security={
        **_object(
            ["username", "password"],
            username={**_TEXT, "title": "User name"},
            password={**_SECRET, "title": "Password"},
            digest={"type": "boolean", "default": False, "title": "Send a digest instead of the password"},
        ),
        "title": "WS-Security UsernameToken",
    },
    reads={
        "type": "array",
        "items": _NAME,
        "title": "Operations that change nothing",
        "description": "These may be retried; the WSDL does not say which operations only read",
    },
    timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"},
)

_MEMBERS: Schema = {"type": "array", "items": {"type": "object"}}

ACTIONS = (
    Action(
        "call",
        "Call an operation of the service",
        _object(
            ["operation"],
            operation={**_NAME, "title": "Operation"},
            input={
                "type": "object",
                "title": "Input",
                "description": "By name, as describe lists them; pass repeated elements as a list",
            },
        ),
        _object(["output"], output={}),
        "write",
        {"operation": "GetPrice", "input": {"item": "Bolt"}},
    ),
    Action(
        "describe",
        "List the operations, or the input and output of one",
        _object([], operation={**_NAME, "title": "Operation"}),
        _object(
            ["operations"],
            operations={
                "type": "array",
                "items": _object(["name"], name=_TEXT, takes=_MEMBERS, gives=_MEMBERS),
            },
        ),
        "read",
        {"operation": "GetPrice"},
    ),
)
