"""Database rows of versions. Every function but the readers runs inside a write."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from typing import Any

from appliance.blobs import Blobs, stored_sizes, touch_contents
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .files.preparation import IDENTITY, EncodedForm
from .models import FileRow, FormRow, VersionRow, WebAppRow
from .records import Difference, FileSpec, NewVersion, Settings, Source, State, Version

MAX_VERSIONS = 50
_ROWS_AT_ONCE = 500


def get_row(scope: TenantScope, app_id: str, number: int) -> VersionRow:
    """The row of a version; NotFound names the app if that does not exist."""
    scope.get(WebAppRow, id=app_id)
    row = scope.find(VersionRow, app_id=app_id, number=number)
    if row is None:
        raise NotFound(Sentence("the WebApp %(app_id)s has no version %(number)s", app_id=repr(app_id), number=number))
    return row


def get_same(scope: TenantScope, row: VersionRow) -> VersionRow:
    """Inside a write: the row as it is now; Conflict if it is another version, because the WebApp was deleted and created again."""
    current = get_row(scope, row.app_id, row.number)
    if current.created_at != row.created_at:
        raise Conflict(Sentence(
            "the WebApp %(app_id)s was deleted and created again; upload the version again", app_id=repr(row.app_id)
        ))
    return current


def to_version(row: VersionRow, published_number: int | None, required: Sequence[str] = ()) -> Version:
    state: State = row.state
    if row.number == published_number:
        state = "published"
    elif row.state == "ready" and row.published_at is not None:
        state = "superseded"
    return Version(
        app=row.app_id, number=row.number, state=state, message=row.message, source=Source(**row.source),
        settings=Settings(**row.settings), files=row.files, bytes=row.bytes, reason=row.reason, created_at=row.created_at,
        created_by=row.created_by, published_at=row.published_at, required=tuple(required),
    )  # fmt: skip


def set_published_at(scope: TenantScope, app_id: str, number: int, at: int | None) -> None:
    """Record when the version was last published; None for never."""
    scope.update(VersionRow, published_at=at).where(VersionRow.app_id == app_id, VersionRow.number == number).execute()


def insert_version(scope: TenantScope, app_id: str, new: NewVersion) -> int:
    """Insert a version and its files under a new number; contents that exist already are protected from garbage collection."""
    app = scope.get(WebAppRow, id=app_id)
    number = int(app.last_version) + 1
    now = max(clock.now_ms(), app.updated_at)
    scope.update(WebAppRow, last_version=number, updated_at=now).where(WebAppRow.id == app_id).execute()
    scope.insert(
        VersionRow, app_id=app_id, number=number, state="uploading", message=new.message, source=asdict(new.source),
        settings=asdict(new.settings), rules={}, files=len(new.files), bytes=sum(spec.size for spec in new.files.values()),
        created_at=now, created_by=scope.actor,
    )  # fmt: skip
    rows = [(scope.tenant_id, app_id, number, path, spec.sha256, spec.size) for path, spec in new.files.items()]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[start : start + _ROWS_AT_ONCE]
        places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(part))
        db.execute(
            f"INSERT INTO webapp_file (tenant_id, app_id, number, path, sha256, size) VALUES {places}",  # noqa: S608
            tuple(value for row in part for value in row),
        )
    touch_contents(scope, (spec.sha256 for spec in new.files.values()))
    return number


def stored_bytes(scope: TenantScope, app_id: str) -> int:
    """Bytes of the contents of all versions of an app, each counted once."""
    sql = "SELECT SUM(size) FROM (SELECT DISTINCT sha256, size FROM webapp_file WHERE tenant_id = ? AND app_id = ?) AS contents"
    return int(db.rows(sql, (scope.tenant_id, app_id))[0][0] or 0)


def missing_contents(scope: TenantScope, app_id: str, number: int) -> list[str]:
    """The sha256 of each content of the version that was not uploaded yet."""
    sql = "SELECT DISTINCT sha256 FROM webapp_file WHERE tenant_id = ? AND app_id = ? AND number = ? ORDER BY 1"
    needed = [str(sha256) for (sha256,) in db.rows(sql, (scope.tenant_id, app_id, number))]
    stored = stored_sizes(scope, needed)
    return [sha256 for sha256 in needed if sha256 not in stored]


def check_complete(scope: TenantScope, app_id: str, number: int) -> None:
    """Conflict while contents of the version are missing."""
    if missing := missing_contents(scope, app_id, number):
        raise Conflict(Sentence(
            "%(count)s contents are missing, the first is %(first)s; send them, then finalize",
            count=len(missing), first=missing[0],
        ))


def all_contents(scope: TenantScope, app_id: str, number: int) -> set[FileSpec]:
    """Every content of the version, uploaded or not."""
    rows = db.rows(
        "SELECT DISTINCT sha256, size FROM webapp_file WHERE tenant_id = ? AND app_id = ? AND number = ?",
        (scope.tenant_id, app_id, number),
    )
    return {FileSpec(str(sha256), int(size)) for sha256, size in rows}


def new_contents(scope: TenantScope, app_id: str, number: int, sha256: str | None = None) -> list[tuple[str, FileSpec]]:
    """A path and the content for each content of the version (or only `sha256`) that no earlier version of the app had."""
    rows = db.rows(
        "SELECT min(f.path), f.sha256, min(f.size) FROM webapp_file f WHERE f.tenant_id = ? AND f.app_id = ? AND f.number = ? "
        "AND f.sha256 = coalesce(?, f.sha256) "
        "AND NOT EXISTS (SELECT 1 FROM webapp_form v WHERE v.tenant_id = f.tenant_id AND v.app_id = f.app_id "
        "AND v.content = f.sha256) GROUP BY f.sha256 ORDER BY 1",
        (scope.tenant_id, app_id, number, sha256),
    )
    return [(str(path), FileSpec(str(sha256), int(size))) for path, sha256, size in rows]


def read_files(scope: TenantScope, app_id: str, number: int) -> dict[str, FileSpec]:
    """The files of a version by path."""
    rows = scope.select(FileRow).where(FileRow.app_id == app_id, FileRow.number == number).order_by(FileRow.path)
    return {row.path: FileSpec(row.sha256, row.size) for row in rows}


def mark_ready(scope: TenantScope, blobs: Blobs, row: VersionRow, rules: Mapping[str, Any], forms: Iterable[EncodedForm]) -> None:
    """Mark the version as ready to be published."""
    insert_forms(scope, blobs, row.app_id, forms)
    of_version = (VersionRow.app_id == row.app_id, VersionRow.number == row.number)
    scope.update(VersionRow, state="ready", rules=dict(rules)).where(*of_version).execute()


def insert_forms(scope: TenantScope, blobs: Blobs, app_id: str, forms: Iterable[EncodedForm]) -> None:
    """Insert the encoded forms of the app's contents."""
    for form in forms:
        if form.encoding != IDENTITY:
            blobs.hold(scope, form.sha256)
        db.execute(
            "INSERT INTO webapp_form (tenant_id, app_id, content, encoding, sha256, size, pending) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (tenant_id, app_id, content, encoding) DO NOTHING",
            (scope.tenant_id, app_id, form.content, form.encoding, form.sha256, form.size, int(form.is_pending)),
        )


def fail(scope: TenantScope, row: VersionRow, reason: str) -> None:
    """Mark the version as failed for good; runs its own write."""
    of_version = (VersionRow.app_id == row.app_id, VersionRow.number == row.number, VersionRow.created_at == row.created_at)
    db.write(lambda: scope.update(VersionRow, state="failed", reason=reason[:500]).where(*of_version).execute())


def compare(scope: TenantScope, app_id: str, number: int, against: int) -> Difference:
    """Compare the files of two versions."""
    newer, older = read_files(scope, app_id, number), read_files(scope, app_id, against)
    both = newer.keys() & older.keys()
    changed = tuple(sorted(path for path in both if newer[path].sha256 != older[path].sha256))
    added, removed = tuple(sorted(newer.keys() - older.keys())), tuple(sorted(older.keys() - newer.keys()))
    return Difference(against, added, changed, removed, len(both) - len(changed))


def purge_old(scope: TenantScope, app_id: str, needed: AbstractSet[int]) -> int:
    """Delete the oldest versions beyond MAX_VERSIONS, except the published one and those in `needed`; returns how many."""
    app = scope.get(WebAppRow, id=app_id)
    rows = scope.select(VersionRow, VersionRow.number).where(VersionRow.app_id == app_id).order_by(VersionRow.number.desc())
    old = [row.number for row in rows][MAX_VERSIONS:]
    old = [number for number in old if number != app.published_version and number not in needed]
    if not old:
        return 0
    scope.delete(VersionRow).where(VersionRow.app_id == app_id, VersionRow.number.in_(old)).execute()
    remaining = scope.select(FileRow, FileRow.sha256).where(FileRow.app_id == app_id)
    scope.delete(FormRow).where(FormRow.app_id == app_id, FormRow.content.not_in(remaining)).execute()
    return len(old)
