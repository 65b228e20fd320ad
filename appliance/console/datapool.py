"""Pages of DataPool: collections, and their entities to read, search and sort."""

import json
from typing import Any
from urllib.parse import urlencode

from appliance.datapool import service as datapool

from .routing import PAGE_ROWS, Answer, Page, Visit, page

COLUMNS = 8
OWN = ("id", "created_at", "updated_at", "_version")


@page("GET", "/datapool", scope="entities.read")
def list_collections(visit: Visit) -> Answer:
    """The tenant's collections with their sizes."""
    found = datapool.list_collections(visit.scope, visit.page(limit=100))
    rows = [(collection, _size(visit, collection["name"])) for collection in found.items]
    return Page("collections.html", {"rows": rows, "next_cursor": found.next_cursor})


def _size(visit: Visit, name: str) -> int:
    return datapool.query_entities(visit.scope, name, {"limit": 1, "count": True}).total or 0


@page("GET", "/datapool/<collection>", scope="entities.read")
def show_collection(visit: Visit, collection: str) -> Answer:
    """A collection's entities, newest first unless sorted."""
    args = visit.asked.args
    definition = datapool.get_collection(visit.scope, collection)
    search, sort = args.get("search", ""), args.get("sort", "")
    query: dict[str, Any] = {"limit": PAGE_ROWS, "count": True, "search": search or None, "sort": sort or None}
    found = datapool.query_entities(visit.scope, collection, {**query, "cursor": args.get("cursor") or None})
    kept = {name: value for name, value in (("search", search), ("sort", sort)) if value}
    values = {
        "collection": definition, "columns": definition["fields"][:COLUMNS], "hidden": max(0, len(definition["fields"]) - COLUMNS),
        "entities": found.items, "total": found.total, "next_cursor": found.next_cursor, "search": search, "sort": sort,
        "kept": urlencode(kept), "searchable": bool(definition["search"]), "base": f"/console/datapool/{collection}",
    }  # fmt: skip
    return Page("collection.html", values)


@page("GET", "/datapool/<collection>/<entity_id>", scope="entities.read")
def show_entity(visit: Visit, collection: str, entity_id: str) -> Answer:
    """One entity with every field."""
    definition = datapool.get_collection(visit.scope, collection)
    entity = datapool.get_entity(visit.scope, collection, entity_id)
    values = {
        "collection": definition, "entity": entity, "own": [name for name in OWN if name in entity],
        "as_json": json.dumps(entity, ensure_ascii=False, indent=2),
    }  # fmt: skip
    return Page("entity.html", values)
