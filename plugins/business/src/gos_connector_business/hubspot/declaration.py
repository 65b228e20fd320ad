"""The declaration of the connector: its settings, its actions and its trigger."""

from appliance.connectors.contract import Action, Trigger, object_schema
from gos_connector_business.schema import BEGIN, ITEM, KEY, LIMIT, RECORDS_PAGE, TEXT, TIMEOUT, Schema, base_url

SETTINGS: Schema = object_schema(
    ["token"],
    token={**KEY, "title": "Access token", "description": "The access token of a private app."},
    base_url=base_url("https://api.hubapi.com"),
    timeout_s=TIMEOUT,
)

_TYPE: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9][a-z0-9_-]*$",
    "title": "Object type",
    "description": "Such as contacts, companies or deals, or 2-123456 for a custom type.",
}
_ID: Schema = {"type": ["string", "integer"], "minLength": 1, "title": "Id"}
_PROPERTY: Schema = {"type": "string", "pattern": "^[a-z0-9_]+$"}
_ID_PROPERTY: Schema = {
    **_PROPERTY,
    "title": "Id property",
    "description": "The unique property, such as email, that `id` is a value of.",
}
_NAMES: Schema = {"type": "array", "minItems": 1, "items": _PROPERTY, "title": "Properties to read"}
_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
_VALUES: Schema = {"type": "object", "minProperties": 1, "propertyNames": _PROPERTY, "additionalProperties": _SCALAR}
_FILTER: Schema = object_schema(
    ["property", "operator"],
    property=_PROPERTY,
    operator={
        "enum": [
            *("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "BETWEEN", "IN", "NOT_IN", "HAS_PROPERTY", "NOT_HAS_PROPERTY"),
            *("CONTAINS_TOKEN", "NOT_CONTAINS_TOKEN"),
        ]
    },
    value=_SCALAR,
    high_value=_SCALAR,
    values={"type": "array", "minItems": 1, "items": {"type": ["string", "number"]}},
)
_FILTERS: Schema = {
    "type": "array",
    "maxItems": 5,
    "items": {"type": "array", "minItems": 1, "maxItems": 6, "items": _FILTER},
    "title": "Filter groups",
    "description": "A record matches when all filters of at least one group do.",
}
_ONE: Schema = object_schema(["record"], record={"type": "object"})
_FIELD: Schema = object_schema(
    ["name", "type", "title", "readonly", "unique"],
    name=TEXT, type=TEXT, title={"type": "string"}, readonly={"type": "boolean"}, unique={"type": "boolean"},
    options={"type": "array"},
)  # fmt: skip
_ENDS = {"from_type": _TYPE, "from_id": _ID, "to_type": _TYPE}

ACTIONS = (
    Action(
        "search",
        "Read the records that match filters or a search text",
        object_schema(
            ["type", "properties"], type=_TYPE, properties=_NAMES, filters=_FILTERS, limit=LIMIT,
            query={"type": "string", "minLength": 1, "maxLength": 3000, "title": "Search text"},
            sort=object_schema(["property"], property=_PROPERTY, descending={"type": "boolean", "default": False}),
        ),
        RECORDS_PAGE,
        "read",
        {
            "type": "contacts", "properties": ["email"], "sort": {"property": "email"},
            "filters": [[{"property": "email", "operator": "EQ", "value": "ann@example.com"}]],
        },
    ),
    Action(
        "get",
        "Read one record",
        object_schema(["type", "id", "properties"], type=_TYPE, id=_ID, id_property=_ID_PROPERTY, properties=_NAMES),
        _ONE,
        "read",
        {"type": "contacts", "id": "ann@example.com", "id_property": "email", "properties": ["email"]},
    ),
    Action(
        "create",
        "Add a record",
        object_schema(["type", "values"], type=_TYPE, values=_VALUES),
        _ONE,
        "write",
        {"type": "contacts", "values": {"email": "cleo@example.com"}},
    ),
    Action(
        "upsert",
        "Add or change up to 100 records by a unique property",
        object_schema(
            ["type", "id_property", "records"], type=_TYPE, id_property=_ID_PROPERTY,
            records={
                "type": "array", "minItems": 1, "maxItems": 100,
                "items": object_schema(["id", "values"], id=_ID, values={**_VALUES, "minProperties": 0}),
            },
        ),
        object_schema(
            ["records"],
            records={"type": "array", "items": object_schema(["id", "new"], id=TEXT, new={"type": "boolean"})},
        ),
        "idempotent",
        {"type": "contacts", "id_property": "email", "records": [{"id": "dana@example.com", "values": {"firstname": "Dana"}}]},
    ),
    Action(
        "update",
        "Set properties of a record",
        object_schema(["type", "id", "values"], type=_TYPE, id=_ID, id_property=_ID_PROPERTY, values=_VALUES),
        _ONE,
        "idempotent",
        {"type": "contacts", "id": "ann@example.com", "id_property": "email", "values": {"firstname": "Ann"}},
    ),
    Action(
        "delete",
        "Move a record to the recycling bin; `deleted` is false when it did not exist",
        object_schema(["type", "id"], type=_TYPE, id=_ID),
        object_schema(["deleted"], deleted={"type": "boolean"}),
        "idempotent",
        {"type": "contacts", "id": "2"},
    ),
    Action(
        "associate",
        "Associate two records with HubSpot's default association",
        object_schema([*_ENDS, "to_id"], **_ENDS, to_id=_ID),
        object_schema(["associated"], associated={"type": "boolean"}),
        "idempotent",
        {"from_type": "contacts", "from_id": "1", "to_type": "companies", "to_id": "9"},
    ),
    Action(
        "associations",
        "List the records of a type that are associated with a record",
        object_schema([*_ENDS], **_ENDS, limit=LIMIT),
        object_schema(
            ["records", "truncated"],
            records={"type": "array", "items": object_schema(["id", "labels"], id=TEXT, labels={"type": "array", "items": TEXT})},
            truncated={"type": "boolean"},
        ),
        "read",
        {"from_type": "contacts", "from_id": "1", "to_type": "companies"},
    ),
    Action(
        "describe",
        "List the properties of an object type",
        object_schema(["type"], type=_TYPE),
        object_schema(["properties"], properties={"type": "array", "items": _FIELD}),
        "read",
        {"type": "contacts"},
    ),
)  # fmt: skip

TRIGGERS = (
    Trigger(
        "changed_records",
        "Records that were added or changed",
        object_schema(
            ["type", "properties"], type=_TYPE, properties=_NAMES, begin=BEGIN,
            filters={"type": "array", "maxItems": 4, "items": _FILTER, "title": "Filters that must all match"},
        ),
        ITEM,
        {"type": "contacts", "properties": ["email"], "begin": "start"},
    ),
)  # fmt: skip
