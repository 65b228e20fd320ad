"""The declaration of the connector: its settings, its actions and its trigger."""

from appliance.connectors.contract import Action, Trigger, object_schema
from gos_connector_business.schema import (
    ADDRESS,
    BEGIN,
    ITEM,
    KEY,
    LIMIT,
    RECORDS,
    RECORDS_PAGE,
    SECRET,
    TEXT,
    TIMEOUT,
    Schema,
)


def _needs(protocol: str, *members: str) -> Schema:
    """The settings that a protocol requires; json2 is the default protocol."""
    condition: Schema = {"properties": {"protocol": {"const": protocol}}}
    if protocol != "json2":
        condition["required"] = ["protocol"]
    return {"if": condition, "then": {"required": list(members)}}


SETTINGS: Schema = {
    **object_schema(
        ["base_url"],
        base_url=ADDRESS,
        protocol={
            "enum": ["json2", "jsonrpc"],
            "default": "json2",
            "title": "Protocol",
            "description": "json2 for Odoo 19 and later, jsonrpc for earlier versions.",
        },
        database={
            **TEXT,
            "title": "Database",
            "secret_target": True,
            "description": "For json2 only needed when a host has several databases.",
        },
        key={**KEY, "title": "API key", "description": "For json2."},
        user={**TEXT, "title": "User", "description": "For jsonrpc: the login."},
        password={**SECRET, "title": "Password", "description": "For jsonrpc: the password or an API key."},
        timeout_s=TIMEOUT,
    ),
    "allOf": [_needs("json2", "key"), _needs("jsonrpc", "database", "user", "password")],
}

_MODEL: Schema = {"type": "string", "pattern": r"^[a-z_][a-z0-9_.]*$", "title": "Model", "description": "Such as res.partner."}
_METHOD: Schema = {"type": "string", "pattern": "^[a-z][a-zA-Z0-9_]*$"}
_FIELDS: Schema = {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[a-z_][a-zA-Z0-9_]*$"}}
_IDS: Schema = {"type": "array", "minItems": 1, "maxItems": 1000, "uniqueItems": True, "items": {"type": "integer", "minimum": 1}}
_CONTEXT: Schema = {"type": "object", "title": "Context", "description": "Odoo's context, such as {lang: de_DE}."}
_DOMAIN: Schema = {"type": "array", "title": "Domain", "description": "Odoo's search domain, such as [[name, =, Ann]]."}
_VALUES: Schema = {"type": "object", "minProperties": 1}
_EXTERNAL: Schema = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9_]+\.[A-Za-z0-9_.-]+$",
    "maxLength": 200,
    "description": "Module and name, such as gos.order_17.",
}
_FIELD = object_schema(
    ["name", "type", "title", "required", "readonly"],
    name=TEXT, type=TEXT, title={"type": "string"}, required={"type": "boolean"}, readonly={"type": "boolean"},
    relation={"type": "string"}, options={"type": "array"},
)  # fmt: skip

ACTIONS = (
    Action(
        "search",
        "Read the records that match a domain",
        object_schema(
            ["model", "fields"], model=_MODEL, domain=_DOMAIN, fields=_FIELDS, context=_CONTEXT,
            order={"type": "string", "pattern": r"^[a-z_][\w.]*( (asc|desc))?(, ?[a-z_][\w.]*( (asc|desc))?)*$", "title": "Order"},
            offset={"type": "integer", "minimum": 0},
            limit=LIMIT,
        ),
        RECORDS_PAGE,
        "read",
        {"model": "res.partner", "domain": [["is_company", "=", True]], "fields": ["name", "write_date"], "order": "name, id desc"},
    ),
    Action(
        "read",
        "Read records by their ids",
        object_schema(["model", "ids", "fields"], model=_MODEL, ids=_IDS, fields=_FIELDS, context=_CONTEXT),
        object_schema(["records"], records=RECORDS),
        "read",
        {"model": "res.partner", "ids": [1], "fields": ["name", "parent_id"]},
    ),
    Action(
        "create",
        "Add records, all or none",
        object_schema(
            ["model", "records"], model=_MODEL, context=_CONTEXT,
            records={"type": "array", "minItems": 1, "maxItems": 1000, "items": {"type": "object"}},
        ),
        object_schema(["ids"], ids={"type": "array", "items": {"type": "integer"}}),
        "write",
        {"model": "res.partner", "records": [{"name": "Cleo"}]},
    ),
    Action(
        "upsert",
        "Add or change records by their external id, all or none",
        object_schema(
            ["model", "records"], model=_MODEL, context=_CONTEXT,
            records={
                "type": "array", "minItems": 1, "maxItems": 1000,
                "items": object_schema(["external_id", "values"], external_id=_EXTERNAL, values=_VALUES),
            },
        ),
        object_schema(["ids"], ids={"type": "array", "items": {"type": "integer"}}),
        "idempotent",
        {"model": "res.partner", "records": [{"external_id": "gos.customer_17", "values": {"name": "Dana"}}]},
    ),
    Action(
        "update",
        "Set fields of records",
        object_schema(["model", "ids", "values"], model=_MODEL, ids=_IDS, values=_VALUES, context=_CONTEXT),
        object_schema(["updated"], updated={"type": "integer"}),
        "idempotent",
        {"model": "res.partner", "ids": [1], "values": {"name": "Ann"}},
    ),
    Action(
        "delete",
        "Delete records, skipping those that do not exist",
        object_schema(["model", "ids"], model=_MODEL, ids=_IDS, context=_CONTEXT),
        object_schema(["deleted"], deleted={"type": "integer"}),
        "idempotent",
        {"model": "res.partner", "ids": [2]},
    ),
    Action(
        "call",
        "Run a method of a model",
        object_schema(
            ["model", "method"], model=_MODEL, method=_METHOD, context=_CONTEXT,
            ids={**_IDS, "description": "The records the method runs on; omit it for a method of the model itself."},
            args={
                "type": "object", "title": "Arguments", "description": "Arguments by name.",
                "not": {"anyOf": [{"required": ["ids"]}, {"required": ["context"]}]},
            },
        ),
        object_schema(["result"], result={}),
        "write",
        {"model": "res.partner", "method": "search_count", "args": {"domain": []}},
    ),
    Action(
        "describe",
        "List the fields of a model",
        object_schema(["model"], model=_MODEL),
        object_schema(["fields"], fields={"type": "array", "items": _FIELD}),
        "read",
        {"model": "res.partner"},
    ),
)  # fmt: skip

TRIGGERS = (
    Trigger(
        "changed_records",
        "Records that were added or changed",
        object_schema(["model", "fields"], model=_MODEL, domain=_DOMAIN, fields=_FIELDS, context=_CONTEXT, begin=BEGIN),
        ITEM,
        {"model": "res.partner", "fields": ["name"], "begin": "start"},
    ),
)
