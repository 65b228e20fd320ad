"""The connector's declaration: JSON Schemas of its settings and actions."""

from typing import Any

from appliance.connectors.contract import Action

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_SECRET: Schema = {"type": "string", "secret": True}
_NAME: Schema = {"type": "string", "pattern": r"^[_A-Za-z][_0-9A-Za-z]{0,200}$"}


def _needs(kind: str, *members: str) -> Schema:
    return {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"required": list(members)}}


def _object(required: list[str], **properties: Any) -> Schema:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


SETTINGS: Schema = _object(
    ["url"],
    url={
        "type": "string",
        "pattern": r"^https?://[^/?#@\\]+(/[^#\\]*)?$",
        "title": "Address",
        "description": "The endpoint that receives documents: https://api.example.com/graphql",
        "secret_target": True,
    },
    auth={
        "type": "object",
        "title": "Credentials",
        "required": ["kind"],
        "additionalProperties": False,
        "properties": {
            "kind": {"enum": ["none", "basic", "bearer", "header"], "title": "Kind", "default": "none"},
            "username": {**_TEXT, "title": "User name", "description": "For basic."},
            "password": {**_SECRET, "title": "Password", "description": "For basic."},
            "token": {**_SECRET, "title": "Token", "description": "For bearer."},
            "name": {**_TEXT, "title": "Name", "description": "Name of the header that contains the key."},
            "value": {**_SECRET, "title": "Key", "description": "For header."},
        },
        "allOf": [_needs("basic", "username", "password"), _needs("bearer", "token"), _needs("header", "name", "value")],
    },
    headers={"type": "object", "additionalProperties": _TEXT, "title": "Headers of every call"},
    idempotency=_object(
        ["header"],
        header={**_TEXT, "minLength": 1, "title": "Header for the idempotency key of a mutation"},
        honoured={"type": "boolean", "default": False, "title": "The service never processes the same key twice"},
    ),
    timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"},
)

_PATH: Schema = {"type": "array", "items": {"type": ["string", "integer"]}}
_ERRORS: Schema = {
    "type": "array",
    "items": _object(["message"], message=_TEXT, path=_PATH, code=_TEXT),
    "description": "Only with `partial: keep`.",
}
_RUN: Schema = _object(
    ["document"],
    document={"type": "string", "minLength": 1, "maxLength": 100_000, "title": "Document"},
    variables={
        "type": "object",
        "title": "Variables",
        "description": "Values for the document's variables; never write them into the document.",
    },
    operation={**_NAME, "title": "Operation", "description": "The operation to run when the document has several."},
    partial={
        "enum": ["refuse", "keep"],
        "default": "refuse",
        "title": "Data with errors",
        "description": "refuse: the call fails; keep: the call returns both data and errors.",
    },
)
_RESULT: Schema = _object(["data"], data={"type": ["object", "null"]}, errors=_ERRORS)
_ARGUMENTS: Schema = {
    "type": "array",
    "items": _object(["name", "type"], name=_TEXT, type=_TEXT, description=_TEXT, default=_TEXT),
}
_FIELDS: Schema = {
    "type": "array",
    "items": _object(
        ["name", "type", "arguments"],
        name=_TEXT, type=_TEXT, arguments=_ARGUMENTS, description=_TEXT, deprecated={"type": "boolean"},
    ),
}  # fmt: skip
_LIST: Schema = {"type": "array", "items": _TEXT}

ACTIONS = (
    Action(
        "query",
        "Run a query; a document with a mutation is refused",
        _RUN,
        _RESULT,
        "read",
        {"document": "query Find($name: String!) { products(name: $name) { id name } }", "variables": {"name": "Bolt"}},
    ),
    Action(
        "mutate",
        "Run a mutation",
        _RUN,
        _RESULT,
        "write",
        {"document": "mutation Add($name: String!) { addProduct(name: $name) { id } }", "variables": {"name": "Nut"}},
    ),
    Action(
        "describe",
        "List queries and mutations with their arguments, or describe a type",
        _object([], type={**_NAME, "title": "Type"}),
        _object(
            [],
            queries=_FIELDS,
            mutations=_FIELDS,
            type=_object(
                ["name", "kind"],
                name=_TEXT, kind=_TEXT, description=_TEXT, fields=_FIELDS, takes=_ARGUMENTS, values=_LIST, members=_LIST,
            ),
        ),
        "read",
    ),
)  # fmt: skip
