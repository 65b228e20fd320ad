"""The declaration of the connector: its settings, its actions and its trigger."""

from appliance.connectors.contract import Action, Trigger, auth_settings, object_schema
from gos_connector_business.schema import ADDRESS, BEGIN, ITEM, LIMIT, RECORDS_PAGE, TEXT, TIMEOUT, Schema

SETTINGS: Schema = object_schema(
    ["url", "auth"],
    url={**ADDRESS, "description": "The address of your domain, such as https://acme.my.salesforce.com."},
    api={"type": "string", "pattern": r"^[1-9][0-9]\.0$", "default": "62.0", "title": "API version"},
    auth=auth_settings("oauth2", "bearer", endpoints=False),
    timeout_s=TIMEOUT,
)

_TYPE: Schema = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]*$", "maxLength": 100, "title": "Object type"}
_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9]{15}([A-Za-z0-9]{3})?$", "title": "Id"}
_FIELD_NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*){0,5}$"}
_FIELDS: Schema = {"type": "array", "minItems": 1, "items": _FIELD_NAME, "title": "Fields to read"}
_VALUES: Schema = {"type": "object", "minProperties": 1}
_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
_LITERAL: Schema = object_schema(["literal"], literal={"type": "string"})
_PARAMS: Schema = {
    "type": "object",
    "description": "Values for each :name in the query. A text is quoted, a list goes after IN; {literal} is a date or time.",
    "additionalProperties": {"anyOf": [_SCALAR, _LITERAL, {"type": "array", "items": {"anyOf": [_SCALAR, _LITERAL]}}]},
}
_CREATED: Schema = object_schema(["id"], id=TEXT)
_FIELD: Schema = object_schema(
    ["name", "type", "title", "required", "readonly"],
    name=TEXT, type=TEXT, title={"type": "string"}, required={"type": "boolean"}, readonly={"type": "boolean"},
    external_id={"type": "boolean"}, options={"type": "array"}, relation={"type": "array"},
)  # fmt: skip
_SAMPLE_ID = "001000000000001AAA"

ACTIONS = (
    Action(
        "query",
        "Read records with a SOQL query",
        object_schema(
            ["soql"], soql={"type": "string", "minLength": 1, "maxLength": 100_000, "title": "Query"}, params=_PARAMS, limit=LIMIT,
            deleted={"type": "boolean", "default": False, "title": "Include the recycling bin"},
        ),
        RECORDS_PAGE,
        "read",
        {"soql": "SELECT Id, Name FROM Account WHERE Name = :name", "params": {"name": "O'Neil"}},
    ),
    Action(
        "get",
        "Read one record",
        object_schema(["type", "id"], type=_TYPE, id=_ID, fields=_FIELDS),
        object_schema(["record"], record={"type": "object"}),
        "read",
        {"type": "Account", "id": _SAMPLE_ID, "fields": ["Name"]},
    ),
    Action(
        "create",
        "Add a record",
        object_schema(["type", "values"], type=_TYPE, values=_VALUES),
        _CREATED,
        "write",
        {"type": "Account", "values": {"Name": "Acme"}},
    ),
    Action(
        "upsert",
        "Add or change a record by an external id",
        object_schema(
            ["type", "field", "value", "values"], type=_TYPE, values={"type": "object"},
            field={"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]*$", "title": "External id field"},
            value={"type": ["string", "integer"], "minLength": 1, "title": "External id"},
        ),
        object_schema(["id", "created"], id=TEXT, created={"type": "boolean"}),
        "idempotent",
        {"type": "Account", "field": "Number__c", "value": "A/17", "values": {"Name": "Acme"}},
    ),
    Action(
        "update",
        "Set fields of a record",
        object_schema(["type", "id", "values"], type=_TYPE, id=_ID, values=_VALUES),
        object_schema(["updated"], updated={"type": "boolean"}),
        "idempotent",
        {"type": "Account", "id": _SAMPLE_ID, "values": {"Name": "Acme Ltd"}},
    ),
    Action(
        "delete",
        "Delete a record; `deleted` is false when it did not exist",
        object_schema(["type", "id"], type=_TYPE, id=_ID),
        object_schema(["deleted"], deleted={"type": "boolean"}),
        "idempotent",
        {"type": "Account", "id": "001000000000002AAA"},
    ),
    Action(
        "composite",
        "Run up to 25 requests as one transaction; later ones may refer to earlier ones",
        object_schema(
            ["requests"],
            requests={
                "type": "array", "minItems": 1, "maxItems": 25,
                "items": object_schema(
                    ["reference", "method", "path"], reference={"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]*$"},
                    method={"enum": ["GET", "POST", "PATCH", "DELETE"]}, body={"type": "object"},
                    path={"type": "string", "pattern": r"^(sobjects|query)[/?][^\s#\\]*$", "not": {"pattern": r"\.\."}},
                ),
            },
        ),
        object_schema(["results"], results={"type": "object"}),
        "write",
        {"requests": [
            {"reference": "account", "method": "POST", "path": "sobjects/Account", "body": {"Name": "Acme"}},
            {"reference": "contact", "method": "POST", "path": "sobjects/Contact", "body": {"AccountId": "@{account.id}"}},
        ]},
    ),
    Action(
        "describe",
        "List the fields of an object type",
        object_schema(["type"], type=_TYPE),
        object_schema(["fields"], fields={"type": "array", "items": _FIELD}),
        "read",
        {"type": "Account"},
    ),
    Action(
        "limits",
        "Show the organization's limits and what is left of them",
        object_schema([]),
        object_schema(["limits"], limits={"type": "object"}),
        "read",
    ),
)  # fmt: skip

TRIGGERS = (
    Trigger(
        "changed_records",
        "Records that were added or changed",
        object_schema(
            ["type", "fields"], type=_TYPE, fields=_FIELDS, params=_PARAMS, begin=BEGIN,
            where={"type": "string", "minLength": 1, "maxLength": 10_000, "title": "SOQL condition"},
        ),
        ITEM,
        {"type": "Account", "fields": ["Name"], "begin": "start"},
    ),
)  # fmt: skip
