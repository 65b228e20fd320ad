"""Folders: the paths that documents are in, and what is to be found there; a folder is there while something is in it."""

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

MOVED_AT_ONCE = 5_000
_ORDER = "path"


@dataclass(frozen=True)
class Folder:
    """A folder: how many documents are in it, and how many in it and below."""

    path: str
    documents: int
    total: int


def list_folders(scope: TenantScope, under: str, request: PageRequest) -> Page[Folder]:
    """The folders below `under` (all below the root for an empty one), by path."""
    check_limit(request)
    after = decode_cursor(request.cursor, _ORDER, 1)[0] if request.cursor else None
    found = sorted(_counted(scope, under), key=lambda folder: folder.path)
    rest = [folder for folder in found if after is None or folder.path > str(after)]
    page = rest[: request.limit]
    cursor = encode_cursor([page[-1].path], _ORDER) if len(rest) > len(page) else None
    return Page(page, cursor, len(found) if request.count else None)


def _counted(scope: TenantScope, under: str) -> Iterator[Folder]:
    """Each folder below, also those in which there are only folders."""
    where, values = _below(under)
    rows = db.rows(
        f"SELECT folder, count(*) FROM document WHERE tenant_id = ? AND {where} GROUP BY folder",  # noqa: S608  ours
        (scope.tenant_id, *values),
    )
    direct = {str(path): int(count) for path, count in rows}
    totals: dict[str, int] = {}
    for path, count in direct.items():
        while path and path != under:
            totals[path] = totals.get(path, 0) + count
            path = path.rpartition("/")[0]  # noqa: PLW2901  upwards
    return (Folder(path, direct.get(path, 0), total) for path, total in totals.items())


def _below(folder: str) -> tuple[str, tuple[str, ...]]:
    """What lies below it; `0` is the character after `/`, and texts are compared by their characters."""
    return ("folder > ? AND folder < ?", (f"{folder}/", f"{folder}0")) if folder else ("folder <> ?", ("",))


def moved_rows(scope: TenantScope, source: str, target: str) -> list[tuple[DocumentRow, str]]:
    """Inside a write: the documents in the folder and below, each with the folder it is to be in."""
    if not source:
        raise ValidationFailed("the root cannot be moved; name a folder", pointer="/from")
    if target == source or target.startswith(f"{source}/"):
        raise Conflict(Sentence("%(source)s cannot move into itself; name another target", source=repr(source)))
    inside: Any = (DocumentRow.folder == source) | ((DocumentRow.folder > f"{source}/") & (DocumentRow.folder < f"{source}0"))
    rows = list(scope.select(DocumentRow).where(inside).limit(MOVED_AT_ONCE + 1))
    if not rows:
        raise NotFound(Sentence("there is no folder %(source)s here", source=repr(source[:80])))
    if len(rows) > MOVED_AT_ONCE:
        raise Conflict(Sentence(
            "more than %(moved_at_once)s documents are in %(source)s; move the folders in it one by one",
            moved_at_once=MOVED_AT_ONCE, source=repr(source),
        ))
    moved = [(row, (target + row.folder.removeprefix(source)).strip("/")) for row in rows]
    if longest := next((folder for _, folder in moved if len(folder) > LONGEST_FOLDER), None):
        raise ValidationFailed(
            Sentence(
                "%(longest)s… would be longer than %(longest_folder)s characters",
                longest=repr(longest[:80]), longest_folder=LONGEST_FOLDER,
            ),
            pointer="/to",
        )
    return moved


def move_rows(scope: TenantScope, moved: list[tuple[DocumentRow, str]]) -> list[DocumentRow]:
    """Inside the write that found them: each has its new folder; answers them as they are then.  One statement for a folder."""
    now = clock.now_ms()
    later = peewee.Case(None, [(DocumentRow.updated_at > now, DocumentRow.updated_at)], now)
    into: dict[str, list[str]] = {}
    for row, target in moved:
        into.setdefault(target, []).append(row.id)
    for target, ids in into.items():  # by their ids: in `a/a` moved to `a` there may be what `a` had before
        changed = scope.update(DocumentRow, folder=target, version=DocumentRow.version + 1, updated_at=later)
        changed.where(DocumentRow.id.in_(ids)).execute()
    return list(scope.select(DocumentRow).where(DocumentRow.id.in_([row.id for row, _ in moved])))
