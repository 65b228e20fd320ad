"""What the connector declares: the schema of its settings, its actions and their inputs and outputs."""

from typing import Any

from appliance.connectors.contract import Action, auth_settings

Schema = dict[str, Any]

USUAL_ENTITIES = 500
MOST_ENTITIES = 10_000

_TEXT: Schema = {"type": "string"}
_LONG: Schema = {"type": "string", "minLength": 1, "maxLength": 8000}
_NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z_\u0080-\uffff][\w.\u0080-\uffff]{0,255}$"}
_ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^?#\\]*)?$"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_ENTITY: Schema = {"type": "object"}


def _object(required: list[str], **properties: Any) -> Schema:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


SETTINGS: Schema = {
    **_object(
        ["base_url"],
        base_url={**_ADDRESS, "title": "Address of the service", "description": "$metadata lies below it.", "secret_target": True},
        auth=auth_settings("none", "basic", "bearer", "header", "oauth2"),
        headers={"type": "object", "additionalProperties": _TEXT, "title": "Headers of every call"},
        csrf={"type": "boolean", "default": False, "title": "Ask for a CSRF token before each change, as SAP Gateway wants it"},
        timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"},
    ),
}

_SET: Schema = {**_NAME, "title": "Entity set"}
_KEY: Schema = {
    "title": "Key",
    "description": "The value of the key, or an object with the value of each part.",
    "anyOf": [_SCALAR, {"type": "object", "minProperties": 1, "additionalProperties": _SCALAR}],
}
_ETAG: Schema = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Refuse when it has changed since."}
_SELECT: Schema = {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"^[\w.@/*\u0080-\uffff]+$"}}
_VALUES: Schema = {"type": "object"}
_PARAMS: Schema = {
    "type": "object",
    "description": "What stands in the filter as :name. A text is quoted; {literal} is a date, time, duration or GUID.",
    "additionalProperties": {
        "anyOf": [{"type": ["string", "number", "boolean", "null"]}, _object(["literal"], literal={"type": "string"})]
    },
}
_ONE: Schema = _object(
    ["entity", "etag"], entity={"type": ["object", "null"]}, etag={"type": ["string", "null"]}, location={"type": "string"}
)

ACTIONS = (
    Action(
        "list",
        "Read the entities of a set, page after page",
        _object(
            ["entity_set"],
            entity_set=_SET,
            filter={**_LONG, "title": "$filter"},
            params=_PARAMS,
            select=_SELECT,
            expand={**_LONG, "title": "$expand"},
            orderby={**_LONG, "title": "$orderby"},
            search={**_LONG, "title": "$search"},
            top={"type": "integer", "minimum": 1, "title": "$top"},
            skip={"type": "integer", "minimum": 0, "title": "$skip"},
            count={"type": "boolean", "title": "$count"},
            limit={"type": "integer", "minimum": 1, "maximum": MOST_ENTITIES, "default": USUAL_ENTITIES},
        ),
        _object(
            ["entities", "truncated"],
            entities={"type": "array", "items": _ENTITY},
            truncated={"type": "boolean"},
            count={"type": ["integer", "string"]},
        ),
        "read",
        {"entity_set": "Products", "filter": "Name eq :name", "params": {"name": "Bolt"}, "limit": 10},
    ),
    Action(
        "get",
        "Read one entity by its key",
        _object(["entity_set", "key"], entity_set=_SET, key=_KEY, select=_SELECT, expand={**_LONG, "title": "$expand"}),
        _ONE,
        "read",
        {"entity_set": "Products", "key": 1},
    ),
    Action(
        "create",
        "Add an entity",
        _object(["entity_set", "values"], entity_set=_SET, values=_VALUES),
        _ONE,
        "write",
        {"entity_set": "Products", "values": {"ID": 70, "Name": "Nut"}},
    ),
    Action(
        "update",
        "Change some properties of an entity that exists",
        _object(["entity_set", "key", "values"], entity_set=_SET, key=_KEY, values=_VALUES, etag=_ETAG),
        _ONE,
        "idempotent",
        {"entity_set": "Products", "key": 1, "values": {"Name": "Bolt"}},
    ),
    Action(
        "delete",
        "Delete an entity; `deleted` is false when it was not there",
        _object(["entity_set", "key"], entity_set=_SET, key=_KEY, etag=_ETAG),
        _object(["deleted"], deleted={"type": "boolean"}),
        "idempotent",
        {"entity_set": "Products", "key": 2},
    ),
    Action(
        "invoke",
        "Run an action of the service, of an entity set or of one entity",
        _object(
            ["name"],
            name={
                **_NAME,
                "title": "Name of the action",
                "description": "With its namespace when it is bound to a set or an entity.",
            },
            entity_set=_SET,
            key=_KEY,
            parameters=_VALUES,
        ),
        _object(["result"], result={"type": ["object", "null"]}),
        "write",
        {"name": "Shop.Discount", "entity_set": "Products", "key": 1, "parameters": {"percent": 10}},
    ),
    Action(
        "describe",
        "List the entity sets, or say the key and the properties of one",
        _object([], entity_set=_SET),
        _object(
            ["entity_sets"],
            entity_sets={
                "type": "array",
                "items": _object(
                    ["name"],
                    name=_TEXT,
                    key={"type": "array", "items": _TEXT},
                    properties={
                        "type": "array",
                        "items": _object(["name", "type", "nullable"], name=_TEXT, type=_TEXT, nullable={"type": "boolean"}),
                    },
                    navigation={"type": "array", "items": _object(["name", "type"], name=_TEXT, type=_TEXT)},
                ),
            },
        ),
        "read",
        {"entity_set": "Products"},
    ),
)
