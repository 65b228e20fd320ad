"""The JSON Schema of a connector's YAML file, used for validation and by editors for completion."""

from typing import Any

Shape = dict[str, Any]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
ERROR_CLASSES = ("config_error", "auth_error", "rate_limited", "transient_error", "rejected", "system_error")
PAGE_KINDS = ("none", "link", "next_url", "cursor", "page", "offset")
AUTH_KINDS = ("none", "bearer", "basic", "header", "query")

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Shape = {"type": "string", "minLength": 1}
_SCHEMA: Shape = {"type": "object", "description": "JSON Schema 2020-12."}
_PATH: Shape = {"type": "string", "description": "A plain path: data.items, paging.next[0]; empty means the whole."}
_VALUE: Shape = {"type": ["string", "number", "boolean", "array", "null"], "description": "A text may hold {{ input.… }}."}
_SCALAR: Shape = {"type": ["string", "number", "boolean", "null"]}
_NAME = "^[a-z][a-z0-9_]*$"


def _shape(properties: Shape, required: tuple[str, ...] = (), **more: Any) -> Shape:
    schema: Shape = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {}) | more


def _needs(kind: str, *members: str) -> Shape:
    return {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"required": list(members)}}


def _table(values: Shape, description: str) -> Shape:
    return {"type": "object", "additionalProperties": values, "description": description}


_AUTH = _shape(
    {
        "kind": {"enum": list(AUTH_KINDS)},
        "token": {**_TEXT, "description": "For bearer."},
        "username": {**_TEXT, "description": "For basic."},
        "password": {"type": "string", "description": "For basic."},
        "name": {**_TEXT, "description": "Of the header or query parameter, for header and query."},
        "value": {**_TEXT, "description": "For header and query."},
    },
    ("kind",),
    allOf=[
        _needs("bearer", "token"), _needs("basic", "username", "password"),
        _needs("header", "name", "value"), _needs("query", "name", "value"),
    ],
)  # fmt: skip

_REQUEST = _shape(
    {
        "method": {"enum": list(METHODS), "default": "GET"},
        "path": {"type": "string", "pattern": "^(/.*)?$", "description": "Below base_url; values are percent-encoded."},
        "query": _table(_VALUE, "Parameters; a list repeats the name, a missing value leaves it out."),
        "headers": _table({"type": "string"}, "A header with a missing value is left out."),
        "json": {"description": "The body as JSON; a member with a missing value is left out."},
        "form": _table(_VALUE, "The body as a form."),
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 900},
    },
    ("path",),
)

_PAGES = _shape(
    {
        "kind": {"enum": list(PAGE_KINDS)},
        "items": {**_PATH, "description": "Where in the answer the array stands."},
        "next": {**_PATH, "description": "Where the next address or cursor stands, for next_url and cursor."},
        "more": {**_PATH, "description": "Where the answer says whether there is more: true or false."},
        "size": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "{{ page.size }}"},
        "first": {"type": "integer", "minimum": 0, "default": 1, "description": "The first {{ page.number }}."},
        "max_pages": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100},
        "max_items": {"type": ["integer", "string"], "default": 10_000, "description": "A number, or {{ input.… ?? 100 }}."},
    },
    ("kind", "items"),
    allOf=[_needs("next_url", "next"), _needs("cursor", "next"), _needs("offset", "size")],
)

_ERROR = _shape(
    {
        "status": {
            "anyOf": [
                {"type": "integer", "minimum": 200, "maximum": 599},
                {"enum": ["2xx", "3xx", "4xx", "5xx"]},
                {"type": "array", "items": {"type": "integer", "minimum": 200, "maximum": 599}, "minItems": 1},
            ]
        },
        "when": _table(_SCALAR, "Paths into the answer and the values that must stand there."),
        "class": {"enum": list(ERROR_CLASSES)},
        "message": {**_TEXT, "description": "One sentence with the next step; may hold {{ answer.… }} and {{ status }}."},
        "outcome": {"enum": ["not_done", "unknown"]},
        "retry_after_header": {**_TEXT, "description": "A header with the seconds to wait, beside Retry-After."},
    },
    ("status", "class", "message"),
)

_ACTION = _shape(
    {
        "summary": _TEXT,
        "effect": {"enum": ["read", "idempotent", "write"]},
        "input": _SCHEMA,
        "output": _SCHEMA,
        "sample": {"type": "object"},
        "request": _REQUEST,
        "pages": _PAGES,
        "item": {"description": "What becomes of each item of the pages; a template over {{ item.… }}."},
        "result": {"type": "object", "description": "The output; a template over {{ answer.… }}, {{ items }}, {{ input.… }}."},
        "errors": {"type": "array", "items": _ERROR},
    },
    ("summary", "effect", "input", "output", "request"),
)

_TRIGGER = _shape(
    {
        "summary": _TEXT,
        "query": _SCHEMA,
        "item": _SCHEMA,
        "sample": {"type": "object"},
        "request": _REQUEST,
        "newest": {**_REQUEST, "description": "Asks for the newest item; with it the first poll need not read everything."},
        "pages": _PAGES,
        "map": {"description": "What becomes of each item; a template over {{ item.… }}."},
        "key": {**_PATH, "description": "Where in an item its id stands."},
        "cursor": {**_PATH, "description": "Where in an item a number or a time stands that grows."},
        "ascending": {"type": "boolean", "default": False, "description": "The service answers the oldest first."},
        "begin": {"enum": ["now", "start"], "default": "now"},
        "errors": {"type": "array", "items": _ERROR},
    },
    ("summary", "query", "item", "request", "pages", "key", "cursor"),
)

_CHECK = _shape(
    {
        "request": _REQUEST,
        "message": {**_TEXT, "description": "What the test of the settings says; may hold {{ answer.… }}."},
        "errors": {"type": "array", "items": _ERROR},
    },
    ("request", "message"),
)


def connector_schema() -> Shape:
    """Return the JSON Schema of a connector's YAML file."""
    members: Shape = {
        "connector": {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 40},
        "title": _TEXT,
        "version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        "tested_against": {**_TEXT, "description": "Which system, by name and version, its fixtures were recorded from."},
        "settings": {**_SCHEMA, "description": "JSON Schema; `secret: true` seals, `secret_target: true` guards the address."},
        "base_url": {**_TEXT, "description": "https://api.example.com/v2, or with {{ settings.… }}; requests stay below it."},
        "auth": _AUTH,
        "headers": _table({"type": "string"}, "Of every request."),
        "query": _table(_VALUE, "Parameters of every request."),
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 30},
        "errors": {"type": "array", "items": _ERROR, "description": "Asked in order, before the usual classes by status."},
        "check": _CHECK,
        "actions": {"type": "object", "minProperties": 1, "additionalProperties": _ACTION, "propertyNames": {"pattern": _NAME}},
        "triggers": {"type": "object", "additionalProperties": _TRIGGER, "propertyNames": {"pattern": _NAME}},
    }
    required = ("connector", "title", "version", "settings", "base_url", "check", "actions")
    return {"$schema": _DIALECT, "title": "connector", **_shape(members, required)}
