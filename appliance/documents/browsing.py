"""Browsing: what is directly in a folder, folders before documents, a page at a time however much there is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from peewee import SQL

from appliance.core.database import db
from appliance.core.errors import InvalidCursor
from appliance.core.pages import PageRequest, check_limit, decode_cursor, encode_cursor, paginate
from appliance.core.scope import TenantScope

from .lists import shown
from .models import DocumentRow
from .naming import check_folder
from .records import Document

Order = Literal["name", "-created_at"]
COUNTED = 10_000  # documents of one folder, which has "more than" that beyond
_ORDER = "folder"
_FOLDERS = "/"  # what the cursor of a page begins with on which there are still folders to come
# As the index `document_tree` has it: no name has a control character, so that what is below a folder stands together.
_END, _PAST, _LAST = "\x01", "\x02", "\U0010ffff"
_KEY = f"(replace(folder, '/', '{_END}') || '{_END}')"


@dataclass(frozen=True)
class Inner:
    """A folder in a folder; `total` documents are in it and below, or more than that if it is `COUNTED`."""

    path: str
    name: str
    total: int


@dataclass(frozen=True)
class Shelf:
    """A page of what is directly in a folder; `total` documents are in it and below, or more if that is `COUNTED`."""

    folder: str
    total: int
    folders: Sequence[Inner]
    documents: Sequence[Document]
    next_cursor: str | None


def list_shelf(scope: TenantScope, folder: str, order: Order, request: PageRequest) -> Shelf:
    """What is directly in the folder, the root being empty: folders by name, then documents; ValidationFailed, InvalidCursor."""
    check_limit(request)
    path = check_folder(folder)
    with db.snapshot():
        names = list(islice(_inner_names(scope, path, _after(request)), request.limit + 1))
        (total, *totals) = _totals(scope, [path, *(_joined(path, name) for name in names[: request.limit])])
        inner = [Inner(_joined(path, name), name, of) for name, of in zip(names, totals, strict=False)]
        room = request.limit - len(inner)
        if len(names) > request.limit or not room:
            more = len(names) > request.limit or _here(scope, path, order).exists()
            return Shelf(path, total, inner, [], _cursor_of(inner[-1].name) if more else None)
        of_documents = None if (request.cursor or "").startswith(_FOLDERS) else request.cursor
        fields = {"id": DocumentRow.id, "name": DocumentRow.name, "created_at": DocumentRow.created_at}
        found = paginate(_here(scope, path, order), PageRequest(room, of_documents, order), fields)
        return Shelf(path, total, inner, shown(scope, found.items), found.next_cursor)


def _after(request: PageRequest) -> str | None:
    """The name that the folders of this page come after; None when there are none any more."""
    if not request.cursor:
        return ""
    if not request.cursor.startswith(_FOLDERS):
        return None
    (name,) = decode_cursor(request.cursor[len(_FOLDERS) :], _ORDER, 1)
    if not isinstance(name, str):
        raise InvalidCursor("the cursor is not one of this list; start again without it")
    return name


def _cursor_of(name: str) -> str:
    return _FOLDERS + encode_cursor([name], _ORDER)


def _inner_names(scope: TenantScope, path: str, after: str | None) -> Any:
    """The names of the folders in a folder: each found by where the one before ends, whatever is below it."""
    prefix, end = _begin(path), _end(path)
    sql = f"SELECT {_KEY} FROM document WHERE tenant_id = ? AND {_KEY} >= ? AND {_KEY} < ? ORDER BY {_KEY} LIMIT 1"  # noqa: S608
    while after is not None:
        found = db.rows(sql, (scope.tenant_id, f"{prefix}{after}{_PAST}", end))
        if not found:
            return
        after = str(found[0][0])[len(prefix) :].partition(_END)[0]
        yield after


def _totals(scope: TenantScope, paths: Sequence[str]) -> list[int]:
    """How many documents are in each folder and below, counted to `COUNTED`."""
    one = f"SELECT 1 FROM document WHERE tenant_id = ? AND {_KEY} >= ? AND {_KEY} < ? LIMIT {COUNTED:d}"  # noqa: S608
    sql = " UNION ALL ".join(f"SELECT {number:d} AS place, count(*) FROM ({one}) AS found" for number in range(len(paths)))  # noqa: S608
    values = [value for path in paths for value in (scope.tenant_id, _begin(path), _end(path))]
    return [int(count) for _, count in sorted(db.rows(sql, tuple(values)))]


def _here(scope: TenantScope, path: str, order: Order) -> Any:
    """The documents directly in the folder, by the index that has them in this order."""
    query = scope.select(DocumentRow)
    if order == "name":
        return query.where(DocumentRow.folder == path)
    return query.where(SQL(db.database.obj.statement(f"{_KEY} = ?"), (_begin(path) or _END,)))


def _begin(path: str) -> str:
    return f"{path.replace('/', _END)}{_END}" if path else ""


def _end(path: str) -> str:
    return f"{path.replace('/', _END)}{_PAST}" if path else _LAST


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
