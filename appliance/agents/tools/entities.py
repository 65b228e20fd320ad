"""The tools that query and change DataPool entities."""

from collections.abc import Mapping
from typing import Any

from appliance.datapool import service as datapool

from .shapes import COUNT, TEXT, inputs, listed, outputs, page
from .tool import Caller, Hints, Tool

_ENTITY = {"type": "object", "description": "The collection's fields beside id, created_at, updated_at and _version."}
_OUTCOME = {
    "type": "object",
    "required": ["event", "collection", "entity"],
    "properties": {"event": {"enum": ["created", "updated", "unchanged", "deleted"]}, "collection": TEXT, "entity": _ENTITY},
}
_OPERATION = {
    "type": "object",
    "required": ["op", "collection"],
    "properties": {
        "op": {"enum": ["create", "update", "upsert", "delete"]}, "collection": TEXT, "id": TEXT,
        "key": {"type": "array", "items": TEXT}, "values": {"type": "object"}, "if_version": COUNT,
    },
    "additionalProperties": False,
}  # fmt: skip


def entity_tools() -> list[Tool]:
    """`query_entities` and `write_entities`."""
    query = inputs(
        ("collection",),
        collection=TEXT,
        filter={"type": "object", "description": 'Such as {"total": {"_gt": 100}, "_or": [...]}.'},
        sort={"type": "string", "description": "Such as -created_at,name."},
        fields={"type": "array", "items": TEXT},
        expand={"type": "array", "items": TEXT},
        search=TEXT,
        group={"type": "array", "items": TEXT},
        aggregate={"type": "object", "description": "{name: {fn: count|sum|avg|min|max, field}}"},
        having={"type": "object"},
        limit={"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        cursor=TEXT,
        count={"enum": ["exact"]},
    )
    operations = {"type": "array", "items": _OPERATION, "minItems": 1, "maxItems": 1000}
    write = inputs(("operations",), operations=operations, dry_run={"type": "boolean"})
    return [
        Tool(
            name="query_entities", title="Query entities",
            description=(
                "Queries the entities of a collection, or groups of them: filter, full-text search, sort, "
                "aggregates, page by page."
            ),
            input_schema=query, output_schema=listed(_ENTITY), effect="read", scopes=frozenset({"entities.read"}), call=_query,
            long=("items",), reaches=lambda _, arguments: [("collection", arguments["collection"])],
        ),
        Tool(
            name="write_entities", title="Write entities",
            description="Creates, updates, upserts and deletes entities in one transaction: all operations or none. "
            "Each error has a pointer to its operation; the outcomes are in the order of the operations.",
            input_schema=write, output_schema=outputs(("outcomes",), outcomes={"type": "array", "items": _OUTCOME}),
            effect="write", scopes=frozenset({"entities.write"}), call=_write, hints=Hints(destructive=True), long=("outcomes",),
            reaches=lambda _, arguments: [("collection", each["collection"]) for each in arguments["operations"]],
        ),
    ]  # fmt: skip


def _query(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Like POST /datapool/{collection}/query."""
    query = {name: value for name, value in arguments.items() if name != "collection"}
    return page(datapool.query_entities(caller.scope, arguments["collection"], query), dict)


def _write(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Like POST /datapool/batch."""
    done = datapool.run_batch(caller.scope, arguments["operations"], dry_run=arguments.get("dry_run", False))
    return {"outcomes": [{"event": o.event, "collection": o.collection, "entity": o.entity} for o in done]}
