"""Values of entities as they stand in a table and on a page: by the type of their field, with what they lead to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core.errors import NotFound
from appliance.datapool import service as datapool

from .routing import Visit
from .showing import cell

NUMBERS = ("number", "integer", "decimal")
_DOCUMENT = re.compile(r"doc_[0-9A-Za-z]{21}")
OWN: tuple[Mapping[str, Any], ...] = (
    {"name": "id", "type": "id"}, {"name": "created_at", "type": "datetime"}, {"name": "updated_at", "type": "datetime"},
    {"name": "_version", "type": "integer"},
)  # fmt: skip
Titles = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Cell:
    """A value as it is shown: `kind` is `text`, `number`, `moment`, `choice`, `truth`, `link`, `id`, `json` or `empty`."""

    kind: str
    text: str = ""
    url: str = ""
    whole: str = ""


def find_titles(visit: Visit, fields: Sequence[Mapping[str, Any]], entities: Sequence[Mapping[str, Any]]) -> Titles:
    """What the relations of these entities lead to is called, by collection and id; one look per collection."""
    wanted: dict[str, set[str]] = {}
    for field in fields:
        if field["type"] == "relation":
            found = {entity[field["name"]] for entity in entities if isinstance(entity.get(field["name"]), str)}
            wanted.setdefault(field["collection"], set()).update(found)
    titles: dict[tuple[str, str], str] = {}
    for collection, ids in wanted.items():
        try:
            named = datapool.name_entities(visit.scope, collection, ids)
        except NotFound:
            continue  # deleted with its entities a moment ago: the ids stay ids
        titles |= {(collection, entity_id): title for entity_id, title in named.items()}
    return titles


def cell_of(field: Mapping[str, Any], value: Any, titles: Titles, *, may_read_documents: bool = False) -> Cell:
    """The value of a field as it is shown."""
    kind = field["type"]
    if value is None or value == "":
        return Cell("empty")
    text = cell(value)
    if kind in NUMBERS:
        return Cell("number", text)
    if kind == "datetime":
        return Cell("moment", str(value))
    if kind == "boolean":
        return Cell("truth", text)
    if kind == "select":
        return Cell("choice", text)
    if kind == "relation" and isinstance(value, str):  # an older version may hold what the field of this name held then
        target = field["collection"]
        return Cell("link", titles.get((target, value), str(value)), f"/console/datapool/{target}/{value}", str(value))
    if kind == "json":
        return Cell("json", text)
    if kind == "email":
        return Cell("link", text, f"mailto:{value}")
    if kind == "url":
        return Cell("outside", text, str(value))
    if kind == "id":
        return Cell("id", text)
    if may_read_documents and _DOCUMENT.fullmatch(str(value)):
        return Cell("link", text, f"/console/documents/{value}")
    return Cell("text", text, whole=str(value) if len(text) > 40 and len(str(value)) < 2000 else "")
