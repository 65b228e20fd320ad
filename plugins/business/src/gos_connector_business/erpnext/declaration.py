"""The declaration of the connector: its settings, its actions and its trigger."""

from appliance.connectors.contract import Action, Trigger, object_schema
from gos_connector_business.schema import ADDRESS, BEGIN, ITEM, KEY, LIMIT, RECORDS_PAGE, TEXT, TIMEOUT, Schema

SETTINGS: Schema = object_schema(
    ["url", "key", "secret"],
    url={**ADDRESS, "description": "The site's address, such as https://acme.erpnext.com."},
    key={"type": "string", "pattern": "^[!-9;-~]+$", "title": "API key"},
    secret={**KEY, "title": "API secret"},
    timeout_s=TIMEOUT,
)

_TYPE: Schema = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9 _-]*$", "maxLength": 140, "title": "DocType"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 140, "title": "Name", "description": "The document's id."}
_FIELD_NAME: Schema = {"type": "string", "pattern": "^[a-z_][a-z0-9_]*$"}
_FIELDS: Schema = {"type": "array", "minItems": 1, "items": _FIELD_NAME, "title": "Fields to read"}
_VALUES: Schema = {"type": "object", "minProperties": 1}
_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
_FILTERS: Schema = {
    "type": "array",
    "title": "Filters",
    "description": "Such as [[status, =, Open], [grand_total, '>', 100]]; all of them must match.",
    "items": {
        "type": "array",
        "minItems": 3,
        "maxItems": 3,
        "prefixItems": [
            _FIELD_NAME,
            {"enum": ["=", "!=", "<", ">", "<=", ">=", "like", "not like", "in", "not in", "is", "between"]},
            {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]},
        ],
    },
}
_ORDER: Schema = {"type": "string", "pattern": "^[a-z_][a-z0-9_]*( (asc|desc))?(, ?[a-z_][a-z0-9_]*( (asc|desc))?)*$"}
_ONE: Schema = object_schema(["document"], document={"type": "object"})
_SAMPLE_NAME = "CUST-0001"

ACTIONS = (
    Action(
        "list",
        "Read the documents of a type that match filters",
        object_schema(
            ["type", "fields"], type=_TYPE, fields=_FIELDS, filters=_FILTERS, order={**_ORDER, "title": "Order"}, limit=LIMIT,
            any_filters={**_FILTERS, "title": "Further filters", "description": "At least one of them must match."},
        ),
        RECORDS_PAGE,
        "read",
        {"type": "Customer", "fields": ["customer_name"], "filters": [["customer_name", "=", "Acme"]], "order": "modified desc"},
    ),
    Action(
        "get",
        "Read one document with its child tables",
        object_schema(["type", "name"], type=_TYPE, name=_NAME),
        _ONE,
        "read",
        {"type": "Customer", "name": _SAMPLE_NAME},
    ),
    Action(
        "create",
        "Add a document",
        object_schema(["type", "values"], type=_TYPE, values=_VALUES),
        _ONE,
        "write",
        {"type": "Customer", "values": {"customer_name": "Acme"}},
    ),
    Action(
        "update",
        "Set fields of a document",
        object_schema(["type", "name", "values"], type=_TYPE, name=_NAME, values=_VALUES),
        _ONE,
        "idempotent",
        {"type": "Customer", "name": _SAMPLE_NAME, "values": {"customer_name": "Acme Ltd"}},
    ),
    Action(
        "delete",
        "Delete a document; `deleted` is false when it did not exist",
        object_schema(["type", "name"], type=_TYPE, name=_NAME),
        object_schema(["deleted"], deleted={"type": "boolean"}),
        "idempotent",
        {"type": "Customer", "name": "CUST-0002"},
    ),
    Action(
        "call",
        "Run a method that the site offers",
        object_schema(
            ["method"], method={"type": "string", "pattern": r"^[a-zA-Z_][\w]*(\.[a-zA-Z_][\w]*)*$", "title": "Method"},
            args={"type": "object", "title": "Arguments"},
        ),
        object_schema(["result"], result={}),
        "write",
        {"method": "frappe.client.get_count", "args": {"doctype": "Customer"}},
    ),
    Action(
        "describe",
        "List the fields of a type",
        object_schema(["type"], type=_TYPE),
        object_schema(
            ["fields"],
            fields={
                "type": "array",
                "items": object_schema(
                    ["name", "type", "title", "required", "readonly"],
                    name=TEXT, type=TEXT, title={"type": "string"}, required={"type": "boolean"}, readonly={"type": "boolean"},
                    options={"type": "string"},
                ),
            },
        ),
        "read",
        {"type": "Customer"},
    ),
)  # fmt: skip

TRIGGERS = (
    Trigger(
        "changed_documents",
        "Documents that were added or changed",
        object_schema(["type", "fields"], type=_TYPE, fields=_FIELDS, filters=_FILTERS, begin=BEGIN),
        ITEM,
        {"type": "Customer", "fields": ["customer_name"], "begin": "start"},
    ),
)
