"""The connector's declaration: JSON Schemas of its settings and actions; product connectors reuse parts of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appliance.connectors.contract import Action, auth_settings, object_schema

Schema = dict[str, Any]

DEFAULT_ENTITIES = 500
MAX_ENTITIES = 10_000

TEXT: Schema = {"type": "string"}
LANGUAGE: Schema = {"type": "string", "pattern": "^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", "title": "Language of messages"}


def address_setting(title: str, description: str) -> Schema:
    """A setting for an address that receives credentials."""
    return {**ADDRESS, "title": title, "description": description, "secret_target": True}


_LONG: Schema = {"type": "string", "minLength": 1, "maxLength": 8000}
NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z_\u0080-\uffff][\w.\u0080-\uffff]{0,255}$"}
ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^?#\\]*)?$"}
TIMEOUT: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 900, "default": 60, "title": "Seconds per request"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_ENTITY: Schema = {"type": "object"}


SETTINGS: Schema = {
    **object_schema(
        ["base_url"],
        base_url=address_setting("Address of the service", "Without /$metadata."),
        auth=auth_settings("none", "basic", "bearer", "header", "oauth2"),
        headers={"type": "object", "additionalProperties": TEXT, "title": "Headers of every call"},
        csrf={"type": "boolean", "default": False, "title": "Fetch a CSRF token before each change, as SAP Gateway requires"},
        timeout_s=TIMEOUT,
    ),
}

SET: Schema = {**NAME, "title": "Entity set"}
KEY: Schema = {
    "title": "Key",
    "description": "The key's value, or an object with the value of each part.",
    "anyOf": [_SCALAR, {"type": "object", "minProperties": 1, "additionalProperties": _SCALAR}],
}
_ETAG: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1000,
    "description": "The call is refused when the entity has changed since.",
}
_SELECT: Schema = {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"^[\w.@/*\u0080-\uffff]+$"}}
VALUES: Schema = {"type": "object"}
_PARAMS: Schema = {
    "type": "object",
    "description": "Values of the :names in the filter. Text is quoted; write a date, time, duration or GUID as {literal}.",
    "additionalProperties": {
        "anyOf": [{"type": ["string", "number", "boolean", "null"]}, object_schema(["literal"], literal={"type": "string"})]
    },
}
ONE: Schema = object_schema(
    ["entity", "etag"], entity={"type": ["object", "null"]}, etag={"type": ["string", "null"]}, location={"type": "string"}
)

ACTIONS = (
    Action(
        "list",
        "Read the entities of a set, following pages",
        object_schema(
            ["entity_set"],
            entity_set=SET,
            filter={**_LONG, "title": "$filter"},
            params=_PARAMS,
            select=_SELECT,
            expand={**_LONG, "title": "$expand"},
            orderby={**_LONG, "title": "$orderby"},
            search={**_LONG, "title": "$search"},
            top={"type": "integer", "minimum": 1, "title": "$top"},
            skip={"type": "integer", "minimum": 0, "title": "$skip"},
            count={"type": "boolean", "title": "$count"},
            limit={"type": "integer", "minimum": 1, "maximum": MAX_ENTITIES, "default": DEFAULT_ENTITIES},
        ),
        object_schema(
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
        object_schema(["entity_set", "key"], entity_set=SET, key=KEY, select=_SELECT, expand={**_LONG, "title": "$expand"}),
        ONE,
        "read",
        {"entity_set": "Products", "key": 1},
    ),
    Action(
        "create",
        "Add an entity",
        object_schema(["entity_set", "values"], entity_set=SET, values=VALUES),
        ONE,
        "write",
        {"entity_set": "Products", "values": {"ID": 70, "Name": "Nut"}},
    ),
    Action(
        "update",
        "Change some properties of an existing entity",
        object_schema(["entity_set", "key", "values"], entity_set=SET, key=KEY, values=VALUES, etag=_ETAG),
        ONE,
        "idempotent",
        {"entity_set": "Products", "key": 1, "values": {"Name": "Bolt"}},
    ),
    Action(
        "delete",
        "Delete an entity; `deleted` is false when it did not exist",
        object_schema(["entity_set", "key"], entity_set=SET, key=KEY, etag=_ETAG),
        object_schema(["deleted"], deleted={"type": "boolean"}),
        "idempotent",
        {"entity_set": "Products", "key": 2},
    ),
    Action(
        "invoke",
        "Run an action of the service, of an entity set or of one entity",
        object_schema(
            ["name"],
            name={
                **NAME,
                "title": "Name of the action",
                "description": "Include the namespace when the action is bound to a set or an entity.",
            },
            entity_set=SET,
            key=KEY,
            parameters=VALUES,
        ),
        object_schema(["result"], result={"type": ["object", "null"]}),
        "write",
        {"name": "Shop.Discount", "entity_set": "Products", "key": 1, "parameters": {"percent": 10}},
    ),
    Action(
        "describe",
        "List the entity sets, or describe the key and properties of one",
        object_schema([], entity_set=SET),
        object_schema(
            ["entity_sets"],
            entity_sets={
                "type": "array",
                "items": object_schema(
                    ["name"],
                    name=TEXT,
                    key={"type": "array", "items": TEXT},
                    properties={
                        "type": "array",
                        "items": object_schema(["name", "type", "nullable"], name=TEXT, type=TEXT, nullable={"type": "boolean"}),
                    },
                    navigation={"type": "array", "items": object_schema(["name", "type"], name=TEXT, type=TEXT)},
                ),
            },
        ),
        "read",
        {"entity_set": "Products"},
    ),
)


def with_samples(samples: Mapping[str, Mapping[str, Any]]) -> tuple[Action, ...]:
    """The same actions with a product's own samples."""
    return tuple(replace(action, sample=samples[action.name]) for action in ACTIONS)
