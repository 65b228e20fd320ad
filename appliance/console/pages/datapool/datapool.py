"""Pages of the DataPool: the list of collections, and the entities of one as a table to filter, search, sort and export."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from appliance.blobs import CHUNK, ReceivedFile
from appliance.console.frame.display_values import OWN, DisplayValue, find_titles, format_value
from appliance.console.frame.routing import PAGE_ROWS, Answer, File, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, InvalidCursor, InvalidFilter, InvalidRequest, ValidationFailed
from appliance.core.texts import gettext as _
from appliance.datapool import service as datapool

from .filter_rows import MOST_ROWS, WITHOUT_VALUE, WORDS, Row
from .grid import Grid, read_grid, visible_columns

MOST_COUNTED = 10_000
FORMS: Mapping[str, Literal["csv", "ndjson"]] = {"csv": "csv", "ndjson": "ndjson"}
MEDIA = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}


@page("GET", "/datapool", scope="entities.read")
def list_collections(visit: Visit) -> Answer:
    """The tenant's collections with their entity counts."""
    collections = datapool.list_collections(visit.scope, visit.page(limit=100))
    rows = [(collection, _size(visit, collection["name"])) for collection in collections.items]
    return Page("collections.html", {"rows": rows, "next_cursor": collections.next_cursor, "most": MOST_COUNTED})


def _size(visit: Visit, name: str) -> int:
    return datapool.count_entities(visit.scope, name, datapool.Query(), MOST_COUNTED)


@page("GET", "/datapool/<collection>", scope="entities.read")
def show_collection(visit: Visit, collection: str) -> Answer:
    """The entities of a collection, newest first unless another order is chosen."""
    definition = datapool.get_collection(visit.scope, collection)
    grid, is_sent = read_grid(visit, definition)
    if is_sent and grid.problem is None:
        return Redirect(grid.address())
    try:
        result = _find(visit, grid)
    except InvalidCursor:
        return Redirect(grid.address())
    except (InvalidFilter, InvalidRequest) as error:
        return _grid_page(visit, definition, grid, None, error)
    return _grid_page(visit, definition, grid, result, grid.problem)


def _find(visit: Visit, grid: Grid) -> Any:
    """The page of entities; None when the filter is invalid."""
    if grid.problem is not None:
        return None
    query: dict[str, Any] = {"filter": grid.chosen, "search": grid.search or None, "sort": grid.sort or None, "limit": PAGE_ROWS}
    return datapool.query_entities(visit.scope, grid.collection, {**query, "cursor": visit.request.args.get("cursor") or None})


def _grid_page(visit: Visit, definition: Mapping[str, Any], grid: Grid, result: Any, problem: ApplianceError | None) -> Page:
    columns, entities = visible_columns(grid, definition), result.items if result else []
    titles, may = find_titles(visit, columns, entities), visit.may("documents.read")

    def format_row(entity: Mapping[str, Any]) -> list[DisplayValue]:
        return [format_value(field, entity.get(field["name"]), titles, may_read_documents=may) for field in columns]

    values = {
        "collection": definition, "grid": grid, "columns": columns, "rows": [(each, format_row(each)) for each in entities],
        "problem": problem, "words": {name: _(text) for name, text in WORDS.items()},
        "next_cursor": result.next_cursor if result else None,
        "size": _count(visit, grid, result), "most": MOST_COUNTED,
        "fields": [*definition["fields"], *OWN], "form_rows": [*(grid.rows or ()), Row()][:MOST_ROWS],
        "without_value": WITHOUT_VALUE, "visible_fields": [field["name"] for field in columns],
    }  # fmt: skip
    return Page("collection.html", values, problem.status if problem else 200)


def _count(visit: Visit, grid: Grid, result: Any) -> int | None:
    """The number of matching entities where it is cheap to know, else None.

    Without a filter it is counted up to `MOST_COUNTED`; with one it is known only if everything fits on the first page.
    """
    if result is None:
        return None
    if not grid.chosen and not grid.search:
        return _size(visit, grid.collection)
    return len(result.items) if result.next_cursor is None and "cursor" not in visit.request.args else None


@page("GET", "/datapool/<collection>/export", scope="entities.read")
def export_entities(visit: Visit, collection: str) -> Answer:
    """The entities that match the URL's filter, oldest first, as a CSV or NDJSON file."""
    definition = datapool.get_collection(visit.scope, collection)
    grid, _bars = read_grid(visit, definition)
    if grid.problem is not None:
        raise grid.problem
    form = FORMS.get(visit.request.args.get("format", "csv"))
    if form is None:
        raise ValidationFailed("`format` must be csv or ndjson", pointer="/format")
    receiver = visit.services.blobs.receiver()
    try:
        for piece in datapool.export_entities(visit.scope, collection, form, filter_document=grid.chosen):
            receiver.write(piece)
        received = receiver.finish(durable=False)
    except BaseException:
        receiver.discard()
        raise
    return File(f"{collection}.{form}", MEDIA[form], _pieces(received), received.size)


def _pieces(received: ReceivedFile) -> Iterator[bytes]:
    """Stream the file and delete it afterwards; if the download never starts, the cleanup of temporary files deletes it."""
    try:
        with received.open() as file:
            while piece := file.read(CHUNK):
                yield piece
    finally:
        received.discard()
