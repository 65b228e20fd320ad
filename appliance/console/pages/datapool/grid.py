"""A table of entities as its address describes it: filter, search, order, columns and page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.cells import OWN
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
    """What the address asks for; `chosen` is the filter, `rows` the same as a form shows it (None: it says more)."""

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

    def kept(self, **changes: Any) -> str:
        """The query of the address with these changes; what is usual is left out."""
        asked = replace(self, **changes)
        parts = {
            "filter": json.dumps(asked.chosen, ensure_ascii=False, separators=(",", ":")) if asked.chosen else "",
            "search": asked.search, "sort": asked.sort, "columns": ",".join(asked.columns),
        }  # fmt: skip
        return urlencode({name: value for name, value in parts.items() if value})

    def address(self, **changes: Any) -> str:
        query = self.kept(**changes)
        return f"{self.base}?{query}" if query else self.base

    def hidden(self, *left_out: str) -> list[tuple[str, str]]:
        """What a form that changes a part of the address carries along."""
        parts = {
            "filter": json.dumps(self.chosen, ensure_ascii=False) if self.chosen else "", "search": self.search,
            "sort": self.sort, "columns": ",".join(self.columns),
        }  # fmt: skip
        return [(name, value) for name, value in parts.items() if value and name not in left_out]

    def without(self, row: Row, definition: Mapping[str, Any]) -> str:
        """The address without this comparison."""
        remaining = [each for each in self.rows or () if each is not row]
        return self.address(chosen=filter_rows.filter_of(definition, remaining))


def read_grid(visit: Visit, definition: Mapping[str, Any]) -> tuple[Grid, bool]:
    """What was asked for, and whether a form asked for it, so that the answer is the address that says the same."""
    args = visit.asked.args
    known = [each["name"] for each in (*definition["fields"], *OWN)]
    columns = tuple(name for name in args.get("columns", "").split(",") if name in known)[:MOST_COLUMNS]
    grid = Grid(definition["name"], search=args.get("search", "").strip(), sort=args.get("sort", ""), columns=columns)
    form = args.get("apply", "")
    if form == "columns":
        chosen = tuple(name for name in known if f"c.{name}" in args)
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
    rows = filter_rows.checked(visit.scope, definition, filter_rows.rows_sent(visit.asked.args))
    if wrong := [row for row in rows if row.error]:
        return replace(grid, rows=rows, problem=InvalidFilter(wrong[0].error, pointer=f"/filter/{wrong[0].field}"))
    return replace(grid, rows=rows, chosen=filter_rows.filter_of(definition, rows))


def _read_filter(text: str, depth: int) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    if len(text) > FILTER_CHARACTERS:
        raise InvalidFilter(
            Sentence("a filter in an address has at most %(filter_characters)s characters", filter_characters=FILTER_CHARACTERS),
            pointer="/filter",
        )
    try:
        found = load_json(text.encode("utf8", "replace"), depth)
    except InvalidJson as error:
        where = error.message.partition(": ")[2]
        raise InvalidFilter(
            Sentence('the filter is no JSON such as {"total": {"_gt": 100}}: %(where)s', where=where), pointer="/filter"
        ) from error
    if not isinstance(found, dict):
        raise InvalidFilter('a filter is an object such as {"total": {"_gt": 100}}', pointer="/filter")
    return found


def usual_columns(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The first fields that fit into a cell, and when the entity was changed."""
    names = [each["name"] for each in definition["fields"] if each["type"] != "json"] or [definition["fields"][0]["name"]]
    return (*names[:USUAL_COLUMNS], "updated_at")


def shown_columns(grid: Grid, definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fields that are columns, in the order of the schema."""
    wanted = grid.columns or usual_columns(definition)
    return [each for each in (*definition["fields"], *OWN) if each["name"] in wanted]
