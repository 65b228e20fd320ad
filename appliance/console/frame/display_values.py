"""Formats DataPool field values for tables and detail pages, by the type of the field, with links to related entities."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core.errors import NotFound
from appliance.datapool import service as datapool

from .formatting import cell
from .routing import Visit

NUMBERS = ("number", "integer", "decimal")
_DOCUMENT = re.compile(r"doc_[0-9A-Za-z]{21}")
OWN: tuple[Mapping[str, Any], ...] = (
    {"name": "id", "type": "id"}, {"name": "created_at", "type": "datetime"}, {"name": "updated_at", "type": "datetime"},
    {"name": "_version", "type": "integer"},
)  # fmt: skip
Titles = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class DisplayValue:
    """A value ready for a template.

    `kind` is `text`, `number`, `moment`, `choice`, `truth`, `link` (within the console, or `mailto:`), `outside` (a link to
    another site), `id`, `json` or `empty`; `whole` is the full text when `text` was cut.
    """

    kind: str
    text: str = ""
    url: str = ""
    whole: str = ""


def find_titles(visit: Visit, fields: Sequence[Mapping[str, Any]], entities: Sequence[Mapping[str, Any]]) -> Titles:
    """The titles of all related entities, by (collection, id); one query per collection."""
    ids_by_collection: dict[str, set[str]] = {}
    for field in fields:
        if field["type"] == "relation":
            relation_ids = {entity[field["name"]] for entity in entities if isinstance(entity.get(field["name"]), str)}
            ids_by_collection.setdefault(field["collection"], set()).update(relation_ids)
    titles: dict[tuple[str, str], str] = {}
    for collection, ids in ids_by_collection.items():
        try:
            titles_by_id = datapool.find_titles(visit.scope, collection, ids)
        except NotFound:
            continue  # The collection was deleted a moment ago: its ids are shown instead of titles.
        titles |= {(collection, entity_id): title for entity_id, title in titles_by_id.items()}
    return titles


def format_value(field: Mapping[str, Any], value: Any, titles: Titles, *, may_read_documents: bool = False) -> DisplayValue:
    """The display form of a field's value; text that is a document id becomes a link if the visitor may read documents."""
    kind = field["type"]
    if value is None or value == "":
        return DisplayValue("empty")
    text = cell(value)
    if kind in NUMBERS:
        return DisplayValue("number", text)
    if kind == "datetime":
        return DisplayValue("moment", str(value))
    if kind == "boolean":
        return DisplayValue("truth", text)
    if kind == "select":
        return DisplayValue("choice", text)
    if kind == "relation" and isinstance(value, str):  # In an older version the field may have had another type.
        target = field["collection"]
        return DisplayValue("link", titles.get((target, value), str(value)), f"/console/datapool/{target}/{value}", str(value))
    if kind == "json":
        return DisplayValue("json", text)
    if kind == "email":
        return DisplayValue("link", text, f"mailto:{value}")
    if kind == "url":
        return DisplayValue("outside", text, str(value))
    if kind == "id":
        return DisplayValue("id", text)
    if may_read_documents and _DOCUMENT.fullmatch(str(value)):
        return DisplayValue("link", text, f"/console/documents/{value}")
    return DisplayValue("text", text, whole=str(value) if len(text) > 40 and len(str(value)) < 2000 else "")
