"""Pagination of lists: sort order, opaque cursors and keyset queries."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from peewee import IntegerField, TextField, fn

from appliance.core.sentences import Sentence

from .errors import InvalidCursor, InvalidRequest

T = TypeVar("T")
U = TypeVar("U")
DEFAULT_LIMIT = 50
MAX_LIMIT = 500


@dataclass(frozen=True)
class PageRequest:
    """The page a caller requests: `sort` like `-created_at,name`; `cursor` from the previous page."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    sort: str | None = None
    count: bool = False


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page: the items, the cursor of the next page (None at the end) and the total, if requested."""

    items: Sequence[T]
    next_cursor: str | None = None
    total: int | None = None

    def map(self, view: Callable[[T], U]) -> "Page[U]":
        """The page with `view` applied to every item."""
        return Page([view(item) for item in self.items], self.next_cursor, self.total)


def encode_cursor(values: Sequence[Any], order: str) -> str:
    """An opaque cursor for the row with these sort values in this order."""
    return base64.urlsafe_b64encode(json.dumps([order, *values]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, order: str, count: int) -> list[Any]:
    """The sort values in a cursor; InvalidCursor if it was created for another order."""
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), parse_constant=_refuse)
        if not isinstance(values, list) or len(values) != count + 1 or values[0] != order:
            raise ValueError("another order")
        if not all(_is_storable(value) for value in values):
            raise ValueError("not scalars")
        return values[1:]
    except (ValueError, binascii.Error, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCursor("the cursor does not belong to this list in this order; start again without it") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_storable(value: Any) -> bool:
    """Whether the databases accept the value: valid Unicode texts and 64-bit numbers."""
    if isinstance(value, str):
        value.encode("utf8")
        return "\0" not in value
    return value is None or (isinstance(value, int | float) and -(2**63) <= value < 2**63)


def parse_sort(text: str | None, fields: Mapping[str, Any], default: str) -> list[tuple[str, bool]]:
    """Parse `-created_at,name` into [(name, descending)]; InvalidRequest names an unknown field."""
    order: list[tuple[str, bool]] = []
    for part in (text or default).split(","):
        name = part.strip().removeprefix("-")
        if name not in fields:
            raise InvalidRequest(Sentence(
                "sort: this list cannot be sorted by %(name)s; use one of %(fields)s",
                name=repr(name[:60]), fields=", ".join(sorted(fields)),
            ))
        if name not in [field for field, _ in order]:
            order.append((name, part.strip().startswith("-")))
    return order


def check_limit(request: PageRequest) -> None:
    """Raise InvalidRequest unless the limit is between 1 and the maximum."""
    if not 1 <= request.limit <= MAX_LIMIT:
        raise InvalidRequest(Sentence("limit must be between 1 and %(max_limit)s", max_limit=MAX_LIMIT), pointer="/limit")


def paginate(
    query: Any, request: PageRequest, fields: Mapping[str, Any], *, default: str = "-created_at", tie: str = "id"
) -> Page[Any]:
    """One page of a peewee `query`, by keyset.  `fields` maps sort names to non-null columns and includes `tie`."""
    return _read_page(query, request, fields, _complete_order(request, fields, default, tie), fields)


def paginate_few(query: Any, request: PageRequest, fields: Mapping[str, Any]) -> Page[Any]:
    """As `paginate`, newest first, of a query whose conditions lead to few rows through an index.

    They are sorted, where SQLite would prefer to read all rows in the order of another index.
    """
    order = _complete_order(request, fields, "-created_at", "id")
    first = fields[order[0][0]]
    return _read_page(query, request, fields, order, {**fields, order[0][0]: fn.COALESCE(first, first)})


def _complete_order(request: PageRequest, fields: Mapping[str, Any], default: str, tie: str) -> list[tuple[str, bool]]:
    """The sort order of a request, made unique by `tie`."""
    check_limit(request)
    order = parse_sort(request.sort, fields, default)
    if tie not in [name for name, _ in order]:
        order.append((tie, order[0][1]))
    return order


def _read_page(
    query: Any, request: PageRequest, fields: Mapping[str, Any], order: list[tuple[str, bool]], sorted_by: Mapping[str, Any]
) -> Page[Any]:
    """A page in this order; `sorted_by` has what the database sorts and compares instead of each column."""
    key = ",".join(("-" if down else "") + name for name, down in order)
    total = query.count() if request.count else None
    if request.cursor:
        query = query.where(_after(order, sorted_by, _typed(order, fields, decode_cursor(request.cursor, key, len(order)))))
    columns = [sorted_by[name].desc() if down else sorted_by[name].asc() for name, down in order]
    rows = list(query.order_by(*columns).limit(request.limit + 1))
    more = len(rows) > request.limit
    rows = rows[: request.limit]
    cursor = encode_cursor([getattr(rows[-1], fields[name].name) for name, _ in order], key) if more else None
    return Page(rows, cursor, total)


def _typed(order: list[tuple[str, bool]], fields: Mapping[str, Any], values: list[Any]) -> list[Any]:
    """The values, after a check of their types: PostgreSQL refuses to compare a column with another type."""
    for (name, _), value in zip(order, values, strict=True):
        expected: Any = int if isinstance(fields[name], IntegerField) else str if isinstance(fields[name], TextField) else object
        if value is not None and not isinstance(value, expected):
            raise InvalidCursor("the cursor does not belong to this list; start again without it")
    return values


def _after(order: list[tuple[str, bool]], fields: Mapping[str, Any], values: list[Any]) -> Any:
    """The condition on rows after the values, column by column, each in its own direction."""
    condition = None
    for (name, down), value in reversed(list(zip(order, values, strict=True))):
        column = fields[name]
        beyond = column < value if down else column > value
        condition = beyond if condition is None else beyond | ((column == value) & condition)
    if len(order) == 1:
        return condition
    # It follows from the condition, but only written out does an index lead to the page; without it, the databases read all
    # rows of the pages before.
    (name, down), value = order[0], values[0]
    return (fields[name] <= value if down else fields[name] >= value) & condition
