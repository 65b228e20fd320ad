"""Folders of documents. A folder exists while it contains documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.pages import Page, PageRequest, check_limit, decode_cursor, encode_cursor
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .models import DocumentRow
from .naming import LONGEST_FOLDER

MAX_MOVED = 5_000
_ORDER = "path"


@dataclass(frozen=True)
class Folder:
    """A folder, with the number of documents in it, and of those in it and below."""

    path: str
    documents: int
    total: int


def list_folders(scope: TenantScope, under: str, request: PageRequest) -> Page[Folder]:
    """The folders below `under` (empty for the root), sorted by path."""
    check_limit(request)
    after = decode_cursor(request.cursor, _ORDER, 1)[0] if request.cursor else None
    folders = sorted(_count_documents(scope, under), key=lambda folder: folder.path)
    rest = [folder for folder in folders if after is None or folder.path > str(after)]
    page = rest[: request.limit]
    cursor = encode_cursor([page[-1].path], _ORDER) if len(rest) > len(page) else None
    return Page(page, cursor, len(folders) if request.count else None)


def _count_documents(scope: TenantScope, under: str) -> Iterator[Folder]:
    """Each folder below, including those that contain only folders."""
    where, values = _below_condition(under)
    rows = db.rows(
        f"SELECT folder, count(*) FROM document WHERE tenant_id = ? AND {where} GROUP BY folder",  # noqa: S608  constants only
        (scope.tenant_id, *values),
    )
    direct = {str(path): int(count) for path, count in rows}
    totals: dict[str, int] = {}
    for path, count in direct.items():
        while path and path != under:
            totals[path] = totals.get(path, 0) + count
            path = path.rpartition("/")[0]  # noqa: PLW2901  go up one folder
    return (Folder(path, direct.get(path, 0), total) for path, total in totals.items())


def _below_condition(folder: str) -> tuple[str, tuple[str, ...]]:
    """The SQL condition for folders below this one; `0` is the character after `/`, and texts are compared by code point."""
    return ("folder > ? AND folder < ?", (f"{folder}/", f"{folder}0")) if folder else ("folder <> ?", ("",))


def plan_move(scope: TenantScope, source: str, target: str) -> list[tuple[DocumentRow, str]]:
    """Inside a write: the documents in the folder and below, each with its new folder."""
    if not source:
        raise ValidationFailed("the root cannot be moved; choose a folder", pointer="/from")
    if target == source or target.startswith(f"{source}/"):
        raise Conflict(Sentence("%(source)s cannot be moved into itself; choose another target", source=repr(source)))
    inside: Any = (DocumentRow.folder == source) | ((DocumentRow.folder > f"{source}/") & (DocumentRow.folder < f"{source}0"))
    rows = list(scope.select(DocumentRow).where(inside).limit(MAX_MOVED + 1))
    if not rows:
        raise NotFound(Sentence("there is no folder %(source)s", source=repr(source[:80])))
    if len(rows) > MAX_MOVED:
        raise Conflict(Sentence(
            "more than %(moved_at_once)s documents are in %(source)s; move its subfolders one by one",
            moved_at_once=MAX_MOVED, source=repr(source),
        ))
    moved = [(row, (target + row.folder.removeprefix(source)).strip("/")) for row in rows]
    if too_long := next((folder for _, folder in moved if len(folder) > LONGEST_FOLDER), None):
        raise ValidationFailed(
            Sentence(
                "the path %(longest)s… would exceed %(longest_folder)s characters",
                longest=repr(too_long[:80]), longest_folder=LONGEST_FOLDER,
            ),
            pointer="/to",
        )
    return moved


def apply_move(scope: TenantScope, moves: list[tuple[DocumentRow, str]]) -> list[DocumentRow]:
    """Inside the same write: move the documents with one statement per folder; returns the updated rows."""
    now = clock.now_ms()
    updated_at = peewee.Case(None, [(DocumentRow.updated_at > now, DocumentRow.updated_at)], now)
    ids_by_target: dict[str, list[str]] = {}
    for row, target in moves:
        ids_by_target.setdefault(target, []).append(row.id)
    # by id, because after moving `a/a` to `a`, documents that were in `a` before are there too
    for target, ids in ids_by_target.items():
        changed = scope.update(DocumentRow, folder=target, version=DocumentRow.version + 1, updated_at=updated_at)
        changed.where(DocumentRow.id.in_(ids)).execute()
    return list(scope.select(DocumentRow).where(DocumentRow.id.in_([row.id for row, _ in moves])))
