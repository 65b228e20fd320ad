"""The settings and actions of the connector as JSON Schemas."""

from typing import Any

from appliance.connectors.contract import Action, auth_settings, object_schema

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_SECRET: Schema = {"type": "string", "secret": True}
_ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^#\\]*)?$", "maxLength": 2_000, "secret_target": True}
_NAME: Schema = {"type": "string", "pattern": r"^[^\s{}]{1,200}$"}


SETTINGS: Schema = object_schema(
    ["wsdl_url"],
    wsdl_url={**_ADDRESS, "title": "Address of the WSDL", "description": "Often the service's address followed by ?wsdl"},
    address={**_ADDRESS, "title": "Address of the service", "description": "Default: the address in the WSDL"},
    port={**_NAME, "title": "Port", "description": "The port in the WSDL; default: the first that uses SOAP"},
    auth=auth_settings("none", "basic", "bearer", "header"),
    security={
        **object_schema(
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
        object_schema(
            ["operation"],
            operation={**_NAME, "title": "Operation"},
            input={
                "type": "object",
                "title": "Input",
                "description": "By name, as describe lists them; pass repeated elements as a list",
            },
        ),
        object_schema(["output"], output={}),
        "write",
        {"operation": "GetPrice", "input": {"item": "Bolt"}},
    ),
    Action(
        "describe",
        "List the operations, or the input and output of one",
        object_schema([], operation={**_NAME, "title": "Operation"}),
        object_schema(
            ["operations"],
            operations={
                "type": "array",
                "items": object_schema(["name"], name=_TEXT, takes=_MEMBERS, gives=_MEMBERS),
            },
        ),
        "read",
        {"operation": "GetPrice"},
    ),
)
