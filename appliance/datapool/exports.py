"""Exports entities as NDJSON, or as CSV that is safe from formula injection in spreadsheets."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Literal

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.field_types import FIELD_TYPES, to_text
from appliance.datapool.importing.reading import FORMULA_PREFIXES
from appliance.datapool.limits import in_force
from appliance.datapool.queries import Query, find_page

CHUNK_ROWS = 500


def export_rows(
    scope: TenantScope, collection: CompiledCollection, form: Literal["csv", "ndjson"], filter_document: Any
) -> Iterator[bytes]:
    """All entities that match the filter `chosen`, oldest first, in chunks of at most 500 entities."""
    names = ("id", "created_at", "updated_at", "_version", *collection.fields)
    if form == "csv":
        yield _format_csv([list(names)])
    cursor: str | None = None
    while True:
        with db.deadline(in_force.query_seconds):
            page = find_page(scope, collection, Query(filter=filter_document, sort=("id",), limit=CHUNK_ROWS, cursor=cursor))
        if form == "csv":
            yield _format_csv([[_format_cell(collection, name, entity[name]) for name in names] for entity in page.items])
        else:
            yield "".join(json.dumps(entity, ensure_ascii=False) + "\n" for entity in page.items).encode()
        cursor = page.next_cursor
        if cursor is None:
            return


def _format_csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _format_cell(collection: CompiledCollection, name: str, value: Any) -> str:
    """The text of a cell; one that a spreadsheet would run as a formula gets an apostrophe, which the import removes."""
    text = to_text(value)
    compiled_field = collection.fields.get(name)
    if (
        compiled_field is None
        or FIELD_TYPES[compiled_field.definition.type].kind != "text"
        or not text.startswith(FORMULA_PREFIXES)
    ):
        return text
    return f"'{text}" if text[0] != "'" or text[1:].startswith(FORMULA_PREFIXES) else text
