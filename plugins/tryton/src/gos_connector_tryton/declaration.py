"""The declaration of the connector: its settings and its actions with their inputs and outputs."""

from typing import Any

from appliance.connectors.contract import Action, object_schema

Schema = dict[str, Any]

DEFAULT_RECORDS = 500
MAX_RECORDS = 10_000


_TEXT: Schema = {"type": "string", "minLength": 1}
SETTINGS: Schema = object_schema(
    ["base_url", "database", "user", "password"],
    base_url={"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^?#\\]*)?$", "title": "Address", "secret_target": True},
    database={**_TEXT, "title": "Database", "secret_target": True},
    user={"type": "string", "pattern": "^[^:]+$", "title": "User"},
    password={"type": "string", "secret": True, "title": "Password"},
    timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"},
)

_MODEL: Schema = {"type": "string", "pattern": r"^[a-z_][a-z0-9_.]*$", "title": "Model", "description": "Such as party.party."}
_METHOD: Schema = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}
_FIELDS: Schema = {"type": "array", "minItems": 1, "items": _TEXT}
_IDS: Schema = {"type": "array", "minItems": 1, "maxItems": 1000, "uniqueItems": True, "items": {"type": "integer", "minimum": 1}}
_CONTEXT: Schema = {"type": "object", "title": "Context", "description": "Tryton's context, such as {company: 1}."}
_DOMAIN: Schema = {"type": "array", "title": "Domain", "description": "Tryton's search domain, such as [[name, =, Ann]]."}
_VALUES: Schema = {"type": "object", "minProperties": 1}
_RECORDS: Schema = {"type": "array", "items": {"type": "object"}}
_FIELD = object_schema(
    ["name", "type", "title", "required", "readonly"],
    name=_TEXT, type=_TEXT, title={"type": "string"}, required={"type": "boolean"}, readonly={"type": "boolean"},
    relation={"type": "string"},
)  # fmt: skip

ACTIONS = (
    Action(
        "search",
        "Read the records that match a domain",
        object_schema(
            ["model", "fields"], model=_MODEL, domain=_DOMAIN, fields=_FIELDS, context=_CONTEXT,
            order={"type": "array", "items": {"type": "array", "prefixItems": [_TEXT, {"enum": ["ASC", "DESC"]}], "minItems": 2}},
            offset={"type": "integer", "minimum": 0},
            limit={"type": "integer", "minimum": 1, "maximum": MAX_RECORDS, "default": DEFAULT_RECORDS},
        ),
        object_schema(["records", "truncated"], records=_RECORDS, truncated={"type": "boolean"}),
        "read",
        {"model": "party.party", "domain": [["name", "=", "Ann"]], "fields": ["name", "write_date"], "order": [["id", "ASC"]]},
    ),
    Action(
        "read",
        "Read records by their ids",
        object_schema(["model", "ids", "fields"], model=_MODEL, ids=_IDS, fields=_FIELDS, context=_CONTEXT),
        object_schema(["records"], records=_RECORDS),
        "read",
        {"model": "party.party", "ids": [1], "fields": ["name"]},
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
        {"model": "party.party", "records": [{"name": "Cleo"}]},
    ),
    Action(
        "update",
        "Set fields of records",
        object_schema(["model", "ids", "values"], model=_MODEL, ids=_IDS, values=_VALUES, context=_CONTEXT),
        object_schema(["updated"], updated={"type": "integer"}),
        "idempotent",
        {"model": "party.party", "ids": [1], "values": {"name": "Ann"}},
    ),
    Action(
        "delete",
        "Delete records, skipping those that do not exist",
        object_schema(["model", "ids"], model=_MODEL, ids=_IDS, context=_CONTEXT),
        object_schema(["deleted"], deleted={"type": "integer"}),
        "idempotent",
        {"model": "party.party", "ids": [2]},
    ),
    Action(
        "call",
        "Run a method of a model",
        object_schema(["model", "method"], model=_MODEL, method=_METHOD, args={"type": "array"}, context=_CONTEXT),
        object_schema(["result"], result={}),
        "write",
        {"model": "party.party", "method": "search_count", "args": [[]]},
    ),
    Action(
        "describe",
        "List the fields of a model",
        object_schema(["model"], model=_MODEL),
        object_schema(["fields"], fields={"type": "array", "items": _FIELD}),
        "read",
        {"model": "party.party"},
    ),
)  # fmt: skip
