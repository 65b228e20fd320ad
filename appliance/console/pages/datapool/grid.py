"""The state of an entity table that is held in its URL: filter, search, sort order and columns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.display_values import OWN
from appliance.console.frame.routing import Visit
from appliance.core.errors import ApplianceError, InvalidFilter, InvalidJson
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence

from . import filter_rows
from .filter_rows import Row

USUAL_COLUMNS = 8
MOST_COLUMNS = 60
FILTER_CHARACTERS = 8_000


@dataclass(frozen=True)
class Grid:
    """The state of the table; `chosen` is the filter, `rows` the same filter as form rows (None if it is too complex)."""

    collection: str
    chosen: Mapping[str, Any] = field(default_factory=dict)
    search: str = ""
    sort: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[Row] | None = ()
    expert: str = ""
    problem: ApplianceError | None = None

    @property
    def base(self) -> str:
        return f"/console/datapool/{self.collection}"

    def query_string(self, **changes: Any) -> str:
        """The URL's query string with these changes; defaults are omitted."""
        grid = replace(self, **changes)
        parts = {
            "filter": json.dumps(grid.chosen, ensure_ascii=False, separators=(",", ":")) if grid.chosen else "",
            "search": grid.search, "sort": grid.sort, "columns": ",".join(grid.columns),
        }  # fmt: skip
        return urlencode({name: value for name, value in parts.items() if value})

    def address(self, **changes: Any) -> str:
        query = self.query_string(**changes)
        return f"{self.base}?{query}" if query else self.base

    def hidden(self, *left_out: str) -> list[tuple[str, str]]:
        """The hidden fields of a form that changes one part of the URL and keeps the rest."""
        parts = {
            "filter": json.dumps(self.chosen, ensure_ascii=False) if self.chosen else "", "search": self.search,
            "sort": self.sort, "columns": ",".join(self.columns),
        }  # fmt: skip
        return [(name, value) for name, value in parts.items() if value and name not in left_out]

    def without(self, row: Row, definition: Mapping[str, Any]) -> str:
        """The URL without this comparison."""
        remaining = [each for each in self.rows or () if each is not row]
        return self.address(chosen=filter_rows.filter_of(definition, remaining))


def read_grid(visit: Visit, definition: Mapping[str, Any]) -> tuple[Grid, bool]:
    """The table's state, and whether a form submitted it; the page then redirects to the canonical URL."""
    args = visit.request.args
    known_names = [each["name"] for each in (*definition["fields"], *OWN)]
    columns = tuple(name for name in args.get("columns", "").split(",") if name in known_names)[:MOST_COLUMNS]
    grid = Grid(definition["name"], search=args.get("search", "").strip(), sort=args.get("sort", ""), columns=columns)
    form = args.get("apply", "")
    if form == "columns":
        chosen = tuple(name for name in known_names if f"c.{name}" in args)
        grid = replace(grid, columns=() if chosen == usual_columns(definition) else chosen)
    if form == "rows":
        return _by_rows(visit, definition, grid), True
    text = args.get("filter", "")
    try:
        chosen_filter = _read_filter(text, visit.services.config.limits.json_depth)
    except InvalidFilter as error:
        return replace(grid, expert=text, rows=None, problem=error), False
    expert = json.dumps(chosen_filter, ensure_ascii=False, indent=2) if chosen_filter else ""
    return replace(grid, chosen=chosen_filter, rows=filter_rows.rows_of(chosen_filter), expert=expert), form != ""


def _by_rows(visit: Visit, definition: Mapping[str, Any], grid: Grid) -> Grid:
    rows = filter_rows.check_rows(visit.scope, definition, filter_rows.parse_rows(visit.request.args))
    if wrong := [row for row in rows if row.error]:
        return replace(grid, rows=rows, problem=InvalidFilter(wrong[0].error, pointer=f"/filter/{wrong[0].field}"))
    return replace(grid, rows=rows, chosen=filter_rows.filter_of(definition, rows))


def _read_filter(text: str, depth: int) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    if len(text) > FILTER_CHARACTERS:
        raise InvalidFilter(
            Sentence(
                "the filter is too long; the maximum is %(filter_characters)s characters", filter_characters=FILTER_CHARACTERS
            ),
            pointer="/filter",
        )
    try:
        value = load_json(text.encode("utf8", "replace"), depth)
    except InvalidJson as error:
        where = error.message.partition(": ")[2]
        raise InvalidFilter(
            Sentence('the filter is not valid JSON: %(where)s; example: {"total": {"_gt": 100}}', where=where), pointer="/filter"
        ) from error
    if not isinstance(value, dict):
        raise InvalidFilter('a filter is an object such as {"total": {"_gt": 100}}', pointer="/filter")
    return value


def usual_columns(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The default columns: the first fields that are not JSON, and `updated_at`."""
    names = [each["name"] for each in definition["fields"] if each["type"] != "json"] or [definition["fields"][0]["name"]]
    return (*names[:USUAL_COLUMNS], "updated_at")


def visible_columns(grid: Grid, definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fields shown as columns, in schema order."""
    names = grid.columns or usual_columns(definition)
    return [each for each in (*definition["fields"], *OWN) if each["name"] in names]
