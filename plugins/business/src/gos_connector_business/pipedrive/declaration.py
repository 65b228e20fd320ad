"""The declaration of the connector: its settings, its actions and its trigger."""

from appliance.connectors.contract import Action, Trigger, object_schema
from gos_connector_business.schema import ADDRESS, BEGIN, ITEM, KEY, LIMIT, RECORDS_PAGE, TEXT, TIMEOUT, Schema

KINDS = ("deals", "persons", "organizations", "activities", "products")

SETTINGS: Schema = {
    **object_schema(
        ["token"],
        company={
            "type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "title": "Company domain", "secret_target": True,
            "description": "acme in https://acme.pipedrive.com.",
        },
        base_url={**ADDRESS, "description": "Used instead of the company domain, for example for a gateway."},
        token={**KEY, "title": "API token"},
        timeout_s=TIMEOUT,
    ),
    "oneOf": [{"required": ["company"]}, {"required": ["base_url"]}],
}  # fmt: skip

_KIND: Schema = {"enum": list(KINDS), "title": "Kind of records"}
_ID: Schema = {"type": "integer", "minimum": 1, "title": "Id"}
_VALUES: Schema = {"type": "object", "minProperties": 1}
_ONE: Schema = object_schema(["record"], record={"type": "object"})
_NAME: Schema = {"type": "string", "pattern": "^[a-z0-9_]+$"}
# The query parameters that narrow a list are Pipedrive's own and differ from kind to kind.
_WHERE: Schema = {
    "type": "object",
    "title": "Filter",
    "description": "Pipedrive's own query parameters for this list, such as {owner_id: 7, status: open} or {filter_id: 12}.",
    "propertyNames": {"pattern": "^[a-z0-9_]+$", "not": {"enum": ["cursor", "limit", "sort_by", "sort_direction"]}},
    "additionalProperties": {"type": ["string", "integer", "boolean"]},
}
_RESERVED = ["cursor", "limit", "sort_by", "sort_direction", "updated_since", "updated_until"]
_CHANGED: Schema = object_schema(
    ["kind"],
    # Pipedrive cannot list the products that changed since a moment.
    kind={"enum": [each for each in KINDS if each != "products"], "title": "Kind of records"},
    where={**_WHERE, "propertyNames": {"pattern": "^[a-z0-9_]+$", "not": {"enum": _RESERVED}}},
    begin=BEGIN,
)

ACTIONS = (
    Action(
        "list",
        "Read the records of a kind",
        object_schema(
            ["kind"], kind=_KIND, where=_WHERE, limit=LIMIT,
            sort={"enum": ["id", "add_time", "update_time"]}, descending={"type": "boolean", "default": False},
        ),
        RECORDS_PAGE,
        "read",
        {"kind": "deals", "where": {"status": "open"}, "sort": "update_time", "descending": True},
    ),
    Action(
        "search",
        "Find records by a search text",
        object_schema(
            ["kind", "term"], kind={"enum": [each for each in KINDS if each != "activities"], "title": "Kind of records"},
            term={"type": "string", "minLength": 2, "maxLength": 500, "title": "Search text"},
            fields={"type": "array", "minItems": 1, "items": _NAME, "title": "Fields to search"},
            exact={"type": "boolean", "default": False, "title": "Match the whole field"}, limit=LIMIT,
        ),
        RECORDS_PAGE,
        "read",
        {"kind": "persons", "term": "ann@example.com", "fields": ["email"], "exact": True},
    ),
    Action(
        "get",
        "Read one record",
        object_schema(["kind", "id"], kind=_KIND, id=_ID),
        _ONE,
        "read",
        {"kind": "deals", "id": 1},
    ),
    Action(
        "create",
        "Add a record",
        object_schema(["kind", "values"], kind=_KIND, values=_VALUES),
        _ONE,
        "write",
        {"kind": "deals", "values": {"title": "A thousand bolts"}},
    ),
    Action(
        "update",
        "Set fields of a record",
        object_schema(["kind", "id", "values"], kind=_KIND, id=_ID, values=_VALUES),
        _ONE,
        "idempotent",
        {"kind": "deals", "id": 1, "values": {"title": "Two thousand bolts"}},
    ),
    Action(
        "delete",
        "Delete a record; `deleted` is false when it did not exist",
        object_schema(["kind", "id"], kind=_KIND, id=_ID),
        object_schema(["deleted"], deleted={"type": "boolean"}),
        "idempotent",
        {"kind": "deals", "id": 2},
    ),
    Action(
        "describe",
        "List the fields of a kind of records",
        object_schema(["kind"], kind=_KIND),
        object_schema(
            ["fields"],
            fields={
                "type": "array",
                "items": object_schema(
                    ["name", "type", "title"], name=TEXT, type=TEXT, title={"type": "string"}, options={"type": "array"}
                ),
            },
        ),
        "read",
        {"kind": "deals"},
    ),
)  # fmt: skip

TRIGGERS = (Trigger("changed_records", "Records that were added or changed", _CHANGED, ITEM, {"kind": "deals", "begin": "start"}),)
