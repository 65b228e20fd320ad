"""The connector's declaration: JSON Schemas of its settings, actions and trigger."""

from typing import Any

from appliance.connectors.contract import Action, Effect, Trigger, auth_settings

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_VALUES: Schema = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": ["string", "number", "boolean", "null"]}, {"type": "array", "items": _SCALAR}]
    },
}
_HEADERS: Schema = {"type": "object", "additionalProperties": _TEXT}

SETTINGS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "secrets_need": "base_url",
    "properties": {
        "base_url": {
            "type": "string",
            "pattern": "^https?://[^/?#@\\\\]+(/[^?#\\\\]*)?$",
            "title": "Base address",
            "secret_target": True,
            "description": "Calls are limited to addresses below it.",
        },
        "auth": auth_settings("none", "basic", "bearer", "header", "query", "oauth2"),
        "headers": {**_HEADERS, "title": "Headers of every call"},
        "query": {**_VALUES, "title": "Query parameters of every call"},
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 900,
            "default": 30,
            "title": "Timeout per attempt in seconds",
        },
        "retries": {
            "type": "object",
            "title": "Retries",
            "additionalProperties": False,
            "properties": {
                "attempts": {"type": "integer", "minimum": 1, "maximum": 6, "default": 3, "title": "Attempts in total"},
                "wait_s": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 10,
                    "default": 0.5,
                    "title": "First pause in seconds",
                },
            },
        },
        "idempotency": {
            "type": "object",
            "title": "Idempotency keys",
            "additionalProperties": False,
            "properties": {
                "header": {
                    "type": "string",
                    "default": "Idempotency-Key",
                    "title": "Header for the key; leave empty to send none",
                },
                "honoured": {
                    "type": "boolean",
                    "default": False,
                    "title": "The service remembers keys and never processes the same request twice",
                },
            },
        },
        "check": {
            "type": "object",
            "title": "Settings check",
            "additionalProperties": False,
            "properties": {"url": {**_TEXT, "title": "Address to GET; it must answer without an error"}},
        },
    },
    "if": {
        "required": ["auth"],
        "properties": {"auth": {"required": ["kind"], "properties": {"kind": {"not": {"const": "none"}}}}},
    },
    "then": {"required": ["base_url"]},
}

_CALL: dict[str, Schema] = {
    "url": {"type": "string", "description": "Below the base address, or a full address when there is none."},
    "path": {"type": "object", "additionalProperties": _SCALAR, "description": "Values for {names} in the address."},
    "query": _VALUES,
    "headers": _HEADERS,
    "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 900},
    "accept_statuses": {"type": "array", "items": {"type": "integer", "minimum": 300, "maximum": 599}},
}
_ANSWER: dict[str, Schema] = {"answer": {"enum": ["auto", "json", "text", "base64"], "default": "auto"}}
_PART: Schema = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {"name": _TEXT, "value": _SCALAR, "base64": _TEXT, "filename": _TEXT, "content_type": _TEXT},
}
_BODY: dict[str, Schema] = {
    "json": {"description": "Any JSON value."},
    "form": _VALUES,
    "multipart": {"type": "array", "items": _PART},
    "raw": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"text": _TEXT, "base64": _TEXT, "content_type": _TEXT},
    },
}


def _pages(kind: str, description: str, **members: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": ["kind", *(name for name, schema in members.items() if "default" not in schema)],
        "properties": {"kind": {"const": kind}, **members},
    }


_COUNT: Schema = {"type": "integer", "minimum": 0}
_PAGES: Schema = {
    "oneOf": [
        _pages("none", "One page only."),
        _pages("link", 'The header Link: <…>; rel="next".'),
        _pages("next_url", "The body contains the address of the next page.", pointer=_TEXT),
        _pages("cursor", "The body contains a cursor, which is sent as a query parameter.", pointer=_TEXT, parameter=_TEXT),
        _pages(
            "page",
            "Pages are numbered.",
            parameter={**_TEXT, "default": "page"},
            first={**_COUNT, "default": 1},
            size_parameter={**_TEXT, "default": ""},
            size={**_COUNT, "default": 0},
        ),
        _pages(
            "offset",
            "Pages begin at an offset.",
            parameter={**_TEXT, "default": "offset"},
            size_parameter={**_TEXT, "default": "limit"},
            size={"type": "integer", "minimum": 1, "default": 100},
        ),
    ]
}
_LIST: dict[str, Schema] = {
    "items": {
        "type": "string",
        "default": "",
        "description": "JSON pointer to the array in a page; empty: the page itself.",
    },
    "pages": _PAGES,
    "max_pages": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    "max_items": {"type": "integer", "minimum": 1, "maximum": 100_000, "default": 10_000},
}

OUTPUT: Schema = {
    "type": "object",
    "required": ["status", "headers", "format", "body"],
    "properties": {
        "status": {"type": "integer"},
        "headers": _HEADERS,
        "format": {"enum": ["json", "text", "base64", "none"]},
        "body": {},
    },
}
LIST_OUTPUT: Schema = {
    "type": "object",
    "required": ["items", "pages", "complete"],
    "properties": {"items": {"type": "array"}, "pages": {"type": "integer"}, "complete": {"type": "boolean"}},
}


def _input(*groups: dict[str, Schema], required: tuple[str, ...] = ("url",)) -> Schema:
    properties = {name: schema for group in groups for name, schema in group.items()}
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _action(name: str, summary: str, effect: Effect, schema: Schema, **sample: Any) -> Action:
    return Action(name, summary, schema, OUTPUT, effect, {"url": "/", **sample})


ACTIONS: tuple[Action, ...] = (
    _action("get", "Read one address", "read", _input(_CALL, _ANSWER)),
    Action("list", "Read all pages of a collection", _input(_CALL, _LIST), LIST_OUTPUT, "read", {"url": "/"}),
    _action("post", "Create something (POST)", "write", _input(_CALL, _BODY, _ANSWER), json={"hello": "world"}),
    _action(
        "put", "Replace something (PUT)", "idempotent", _input(_CALL, _BODY, _ANSWER), json={"hello": "world"}
    ),
    _action(
        "patch", "Change part of something (PATCH)", "write", _input(_CALL, _BODY, _ANSWER), json={"hello": "you"}
    ),
    _action("delete", "Remove something (DELETE)", "idempotent", _input(_CALL, _BODY, _ANSWER)),
    _action(
        "request",
        "Any method",
        "write",
        _input(
            {"method": {"enum": ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]}},
            _CALL,
            _BODY,
            _ANSWER,
            required=("method", "url"),
        ),
        method="GET",
    ),
)

_NEW: dict[str, Schema] = {
    "items": _LIST["items"],
    "cursor_field": {**_TEXT, "description": "Field (or JSON pointer) of an item that increases: a number or a sortable time."},
    "cursor_parameter": {**_TEXT, "description": "Query parameter for the last cursor, to receive only newer items."},
    "key_field": {**_TEXT, "default": "id", "description": "Field (or JSON pointer) that identifies an item."},
    "begin": {"enum": ["now", "start"], "default": "now", "description": "Whether existing items count as new."},
}

TRIGGERS: tuple[Trigger, ...] = (
    Trigger(
        "new_items",
        "New or changed items of a JSON list",
        _input(_CALL, _NEW, required=("url", "cursor_field")),
        {"type": "object"},
        {"url": "/", "cursor_field": "id"},
    ),
)
