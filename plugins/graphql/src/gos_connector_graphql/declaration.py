"""The connector's declaration: JSON Schemas of its settings and actions."""

from typing import Any

from appliance.connectors.contract import Action, auth_settings, object_schema

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "pattern": r"^[_A-Za-z][_0-9A-Za-z]{0,200}$"}


SETTINGS: Schema = object_schema(
    ["url"],
    url={
        "type": "string",
        "pattern": r"^https?://[^/?#@\\]+(/[^#\\]*)?$",
        "title": "Address",
        "description": "The endpoint that receives documents: https://api.example.com/graphql",
        "secret_target": True,
    },
    auth=auth_settings("none", "basic", "bearer", "header"),
    headers={"type": "object", "additionalProperties": _TEXT, "title": "Headers of every call"},
    idempotency=object_schema(
        ["header"],
        header={**_TEXT, "minLength": 1, "title": "Header for the idempotency key of a mutation"},
        honoured={"type": "boolean", "default": False, "title": "The service never processes the same key twice"},
    ),
    timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"},
)

_PATH: Schema = {"type": "array", "items": {"type": ["string", "integer"]}}
_ERRORS: Schema = {
    "type": "array",
    "items": object_schema(["message"], message=_TEXT, path=_PATH, code=_TEXT),
    "description": "Only with `partial: keep`.",
}
_RUN: Schema = object_schema(
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
_RESULT: Schema = object_schema(["data"], data={"type": ["object", "null"]}, errors=_ERRORS)
_ARGUMENTS: Schema = {
    "type": "array",
    "items": object_schema(["name", "type"], name=_TEXT, type=_TEXT, description=_TEXT, default=_TEXT),
}
_FIELDS: Schema = {
    "type": "array",
    "items": object_schema(
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
        object_schema([], type={**_NAME, "title": "Type"}),
        object_schema(
            [],
            queries=_FIELDS,
            mutations=_FIELDS,
            type=object_schema(
                ["name", "kind"],
                name=_TEXT, kind=_TEXT, description=_TEXT, fields=_FIELDS, takes=_ARGUMENTS, values=_LIST, members=_LIST,
            ),
        ),
        "read",
    ),
)  # fmt: skip
