"""Lists the direct contents of a folder, subfolders before documents, with cursors that work for any number of documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from peewee import SQL

from appliance.core.database import db
from appliance.core.errors import InvalidCursor
from appliance.core.pages import PageRequest, check_limit, decode_cursor, encode_cursor, paginate
from appliance.core.scope import TenantScope

from .folder_keys import AFTER_END, END, KEY, end_key, start_key
from .listing import to_documents
from .models import DocumentRow
from .naming import check_folder
from .records import Document

Order = Literal["name", "-created_at"]
MAX_COUNT = 1_000  # documents of a folder are counted up to this number
_ORDER = "folder"
_FOLDER_CURSOR = "/"  # prefix of a cursor whose page still has folders to come


@dataclass(frozen=True)
class Subfolder:
    """A folder in a folder. `total` documents are in it and below; `MAX_COUNT` means that many or more."""

    path: str
    name: str
    total: int


@dataclass(frozen=True)
class FolderPage:
    """A page of the direct contents of a folder. `total` documents are in it and below; `MAX_COUNT` means that many or more."""

    folder: str
    total: int
    folders: Sequence[Subfolder]
    documents: Sequence[Document]
    next_cursor: str | None


def list_folder_contents(scope: TenantScope, folder: str, order: Order, request: PageRequest) -> FolderPage:
    """The direct contents of the folder (empty for the root): subfolders by name, then documents. ValidationFailed,
    InvalidCursor."""
    check_limit(request)
    path = check_folder(folder)
    with db.snapshot():
        names = list(islice(_subfolder_names(scope, path, _cursor_name(request)), request.limit + 1))
        (total, *totals) = _totals(scope, [path, *(_join_path(path, name) for name in names[: request.limit])])
        subfolders = [Subfolder(_join_path(path, name), name, count) for name, count in zip(names, totals, strict=False)]
        room = request.limit - len(subfolders)
        if len(names) > request.limit or not room:
            more = len(names) > request.limit or _documents_in(scope, path, order).exists()
            return FolderPage(path, total, subfolders, [], _cursor_of(subfolders[-1].name) if more else None)
        document_cursor = None if (request.cursor or "").startswith(_FOLDER_CURSOR) else request.cursor
        fields = {"id": DocumentRow.id, "name": DocumentRow.name, "created_at": DocumentRow.created_at}
        documents = paginate(_documents_in(scope, path, order), PageRequest(room, document_cursor, order), fields)
        return FolderPage(path, total, subfolders, to_documents(scope, documents.items), documents.next_cursor)


def _cursor_name(request: PageRequest) -> str | None:
    """The name after which the subfolders of this page start; None when the page has only documents."""
    if not request.cursor:
        return ""
    if not request.cursor.startswith(_FOLDER_CURSOR):
        return None
    (name,) = decode_cursor(request.cursor[len(_FOLDER_CURSOR) :], _ORDER, 1)
    if not isinstance(name, str):
        raise InvalidCursor("the cursor does not belong to this list; start again without it")
    return name


def _cursor_of(name: str) -> str:
    return _FOLDER_CURSOR + encode_cursor([name], _ORDER)


def _subfolder_names(scope: TenantScope, path: str, after: str | None) -> Any:
    """The names of the subfolders. Each is found by skipping to the end of the previous one, however much is below it."""
    prefix, end = start_key(path), end_key(path)
    sql = f"SELECT {KEY} FROM document WHERE tenant_id = ? AND {KEY} >= ? AND {KEY} < ? ORDER BY {KEY} LIMIT 1"  # noqa: S608
    while after is not None:
        rows = db.rows(sql, (scope.tenant_id, f"{prefix}{after}{AFTER_END}", end))
        if not rows:
            return
        after = str(rows[0][0])[len(prefix) :].partition(END)[0]
        yield after


def _totals(scope: TenantScope, paths: Sequence[str]) -> list[int]:
    """How many documents are in each folder and below, counted up to `MAX_COUNT`."""
    sql_count = f"SELECT 1 FROM document WHERE tenant_id = ? AND {KEY} >= ? AND {KEY} < ? LIMIT {MAX_COUNT:d}"  # noqa: S608
    counts = (f"SELECT {number:d} AS place, count(*) FROM ({sql_count}) AS found" for number in range(len(paths)))  # noqa: S608
    sql = " UNION ALL ".join(counts)
    values = [value for path in paths for value in (scope.tenant_id, start_key(path), end_key(path))]
    return [int(count) for _, count in sorted(db.rows(sql, tuple(values)))]


def _documents_in(scope: TenantScope, path: str, order: Order) -> Any:
    """The documents directly in the folder, queried so that an index provides this order."""
    query = scope.select(DocumentRow)
    if order == "name":
        return query.where(DocumentRow.folder == path)
    return query.where(SQL(db.database.obj.statement(f"{KEY} = ?"), (start_key(path) or END,)))


def _join_path(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
