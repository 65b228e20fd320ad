"""The connectors' declaration: JSON Schemas of their settings and actions."""

from typing import Any

from appliance.connectors.contract import Action, Json

MAX_ROWS = 10_000
DEFAULT_ROWS = 500
MAX_CHANGED = 1_000

_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
_TABLE = {**_NAME, "description": "The table, with its schema where needed: sales.orders"}
_SCALAR_OR_JSON: dict[str, Any] = {}
_ROW = {"type": "object", "minProperties": 1, "additionalProperties": _SCALAR_OR_JSON}
_PARAMS = {
    "type": "object",
    "description": "Values of the :names in the statement; they are bound and never become part of its text",
    "additionalProperties": _SCALAR_OR_JSON,
}
_ROWS = {"type": "array", "items": {"type": "object"}}
_AFFECTED = {
    "type": "object",
    "required": ["affected"],
    "properties": {"affected": {"type": "integer", "description": "Number of changed rows, as counted by the server"}},
}
_SQL = {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "One statement; write values as :name"}


def settings_schema(port: int) -> Json:
    """The settings schema of a database server whose default port is `port`."""
    return {
        "type": "object",
        "required": ["host", "database", "user"],
        "additionalProperties": False,
        "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": 253, "title": "Host", "secret_target": True},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535, "default": port, "title": "Port", "secret_target": True},
            "database": {**_NAME, "title": "Database"},
            "user": {**_NAME, "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
            "tls": {
                "enum": ["verify", "off"],
                "default": "verify",
                "title": "Encryption",
                "description": "verify: TLS to a server with a trusted certificate for the host; off: clear text",
                "secret_target": True,
            },
            "ca": {
                "type": "string",
                "title": "Certificate authority",
                "description": "PEM certificates to trust instead of the system's",
                "secret_target": True,
            },
        },
    }


ACTIONS = (
    Action(
        "query",
        "Read rows with one SELECT, in a read-only transaction",
        {
            "type": "object",
            "required": ["sql"],
            "additionalProperties": False,
            "properties": {
                "sql": _SQL,
                "params": _PARAMS,
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": DEFAULT_ROWS},
            },
        },
        {
            "type": "object",
            "required": ["rows", "truncated"],
            "properties": {
                "rows": _ROWS,
                "truncated": {"type": "boolean", "description": "Whether there are more rows than `limit`"},
            },
        },
        "read",
        {"sql": "SELECT id, name FROM gos_sample WHERE id >= :least", "params": {"least": 1}},
    ),
    Action(
        "execute",
        "Run one statement that changes data, in its own transaction",
        {"type": "object", "required": ["sql"], "additionalProperties": False, "properties": {"sql": _SQL, "params": _PARAMS}},
        {**_AFFECTED, "properties": {**_AFFECTED["properties"], "rows": _ROWS}},  # type: ignore[dict-item]
        "write",
        {"sql": "UPDATE gos_sample SET name = :name WHERE id = :id", "params": {"name": "Ann", "id": 1}},
    ),
    Action(
        "insert",
        "Add rows, all or none",
        {
            "type": "object",
            "required": ["table", "rows"],
            "additionalProperties": False,
            "properties": {"table": _TABLE, "rows": {"type": "array", "items": _ROW, "minItems": 1, "maxItems": MAX_CHANGED}},
        },
        _AFFECTED,
        "write",
        {"table": "gos_sample", "rows": [{"id": 7, "name": "Bo"}]},
    ),
    Action(
        "upsert",
        "Add rows or change those with the same key, all or none",
        {
            "type": "object",
            "required": ["table", "key", "rows"],
            "additionalProperties": False,
            "properties": {
                "table": _TABLE,
                "key": {
                    "type": "array",
                    "items": _NAME,
                    "minItems": 1,
                    "maxItems": 32,
                    "description": "Columns of a primary key or unique index",
                },
                "rows": {"type": "array", "items": _ROW, "minItems": 1, "maxItems": MAX_CHANGED},
            },
        },
        _AFFECTED,
        "idempotent",
        {"table": "gos_sample", "key": ["id"], "rows": [{"id": 1, "name": "Ann"}]},
    ),
    Action(
        "update",
        "Update the rows that match these values",
        {
            "type": "object",
            "required": ["table", "where", "values"],
            "additionalProperties": False,
            "properties": {"table": _TABLE, "where": _ROW, "values": _ROW},
        },
        _AFFECTED,
        "idempotent",
        {"table": "gos_sample", "where": {"id": 1}, "values": {"name": "Ann"}},
    ),
    Action(
        "delete",
        "Delete the rows that match these values",
        {
            "type": "object",
            "required": ["table", "where"],
            "additionalProperties": False,
            "properties": {"table": _TABLE, "where": _ROW},
        },
        _AFFECTED,
        "idempotent",
        {"table": "gos_sample", "where": {"id": 404}},
    ),
    Action(
        "describe",
        "List tables and views with their columns and keys",
        {"type": "object", "additionalProperties": False, "properties": {"table": _TABLE}},
        {
            "type": "object",
            "required": ["tables"],
            "properties": {
                "tables": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "columns", "key"],
                        "properties": {
                            "name": {"type": "string"},
                            "kind": {"enum": ["table", "view"]},
                            "key": {"type": "array", "items": {"type": "string"}, "description": "Columns of the primary key"},
                            "columns": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["name", "type", "nullable"],
                                    "properties": {
                                        "name": {"type": "string"},
                                        "type": {"type": "string"},
                                        "nullable": {"type": "boolean"},
                                    },
                                },
                            },
                        },
                    },
                }
            },
        },
        "read",
        {},
    ),
)
