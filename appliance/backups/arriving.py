"""The import of a tenant's export: checked as a whole first, then written in one transaction."""

import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from appliance.blobs import Places
from appliance.core import clock, ids, migrations
from appliance.core.database import db
from appliance.core.database.loading import insert_rows, references_later
from appliance.core.errors import AlreadyExists
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import tables as entity_tables
from appliance.monitor import audit
from appliance.tenants import people, service

from .checking import check_contents, check_parts, check_rows, refuse_newer
from .copying import SEARCHED, FileSource, entity_statements
from .holdings import NUMBERED, TAKEN
from .leaving import FORMAT, KIND, TENANT_DATABASE
from .making import CONTENTS
from .parts import MANIFEST, Opened, Part, keep_part, parts_of, read_manifest, read_small
from .problems import UNWATCHED, BackupInvalid, Course, full_disks
from .settling import Resealing, settle
from .shapes import SHA256, check_shape
from .snapshots import opened_snapshot, schema_number

Names = Mapping[str, str]


@dataclass(frozen=True)
class ImportRequest:
    """`name` is the tenant's new id, None for its own; with `active` its triggers go on firing.

    `title` is what people see, empty for what it was called; `owner` the login of somebody who becomes one beside its people,
    `actor` who imports it.
    """

    path: Path
    passphrase: str | None = None
    name: str | None = None
    active: bool = False
    title: str = ""
    owner: str = ""
    actor: str = "system"


@dataclass(frozen=True)
class Imported:
    """What has arrived, and what has to be given again."""

    tenant_id: str
    manifest: dict[str, Any]
    paused: int
    strangers: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


def import_tenant(places: Places, resealing: Resealing, request: ImportRequest, room: Path) -> Imported:
    """Make a tenant of an export, in the open database; as a whole or not at all.

    Ids stay as they are.  What was under way is ended as cancelled, because it may go on where it came from; triggers pause
    unless the request says otherwise.  AlreadyExists, BackupInvalid, StorageFull.
    """
    with tempfile.TemporaryDirectory(prefix=".gos-import-", dir=room) as folder:
        manifest = unpack_export(request.path, request.passphrase, Path(folder))
        return write_tenant(places, resealing, request, Unpacked(Path(folder), manifest))


@dataclass(frozen=True)
class Unpacked:
    """An export that was read from its first to its last byte, in a folder of its own."""

    folder: Path
    manifest: dict[str, Any]


def write_tenant(
    places: Places, resealing: Resealing, request: ImportRequest, export: Unpacked, course: Course = UNWATCHED
) -> Imported:
    """Make a tenant of an export that was unpacked; promise and errors as `import_tenant`."""
    with full_disks():
        tenant_id = check_new_id(request.name or export.manifest["tenant"]["id"])
        database = export.folder / TENANT_DATABASE
        lie_at = _put_contents(places, database, export.folder / "contents", tenant_id, course)
        course.refuse_stopping()
        course.tell("writing", 0, 0)
        scope = service.system_scope(tenant_id, request.actor)
        paused, strangers = db.write(partial(_write, scope, resealing, request, export.manifest, database, lie_at))
    return Imported(tenant_id, export.manifest, paused, strangers)


def check_new_id(tenant_id: str) -> str:
    """The id itself; ValidationFailed when it cannot be one, AlreadyExists when it is taken."""
    ids.check_slug(tenant_id, pointer="/name", longest=24)
    _refuse_known(tenant_id)
    return tenant_id


def _refuse_known(tenant_id: str) -> None:
    if tenant_id in {tenant.id for tenant in service.list_tenants()}:
        raise AlreadyExists(
            Sentence("there is a tenant %(tenant_id)s already; give the one that comes another id", tenant_id=repr(tenant_id)),
            pointer="/name",
        )


def unpack_export(path: Path, passphrase: str | None, folder: Path, course: Course = UNWATCHED) -> dict[str, Any]:
    """Read an export to its end into a folder, check it and bring it to this release's schema; answers the manifest.

    BackupInvalid, StorageFull, Stopped.
    """
    with full_disks():
        manifest = _unpack(path, passphrase, folder, course)
        _modernise(folder / TENANT_DATABASE)
    return manifest


def _unpack(path: Path, passphrase: str | None, folder: Path, course: Course) -> dict[str, Any]:
    manifest: dict[str, Any] | None = None
    count = size = 0
    with parts_of(path, passphrase) as parts:
        first = next(parts, None)
        if first is None or first.name != TENANT_DATABASE:
            raise BackupInvalid(
                Sentence("%(name)s is no export of a tenant; `gos restore` reads the backup of an appliance", name=path.name)
            )
        arrived = {TENANT_DATABASE: keep_part(first, folder / TENANT_DATABASE)}
        with opened_snapshot(folder / TENANT_DATABASE) as file:
            refuse_newer(file)
            check_shape(file)
            for part in parts:
                course.refuse_stopping()
                if part.name == MANIFEST and manifest is None:
                    manifest = read_manifest(read_small(part))
                elif part.name.startswith(CONTENTS) and manifest is None:
                    count, size = count + 1, size + _keep_content(file, part, folder)
                    course.tell("reading", count, 0)
                else:
                    raise BackupInvalid(Sentence(
                        "the export holds an unknown part %(name)s; use the release that wrote it", name=repr(part.name[:80])
                    ))
            if manifest is None:
                raise BackupInvalid("the export is incomplete: its manifest is missing; use another copy of it")
            check_parts(manifest, arrived, FORMAT, KIND)
            check_contents(manifest, count, size)
            check_rows({**manifest, "tables": {"migration": manifest["schema"], **manifest["tables"]}}, file, count)
    return manifest


def _keep_content(file: sqlite3.Connection, part: Opened, folder: Path) -> int:
    row = file.execute("SELECT sha256, size FROM blob WHERE place = ?", (part.name.removeprefix(CONTENTS),)).fetchone()
    if row is not None and not SHA256.fullmatch(str(row[0])):  # it becomes the name of a file
        raise BackupInvalid("the export names contents as we do not; do not use this file")
    found = Part("", 0, "") if row is None else keep_part(part, folder / "contents" / str(row[0]))
    if row is None or (found.sha256, found.size) != tuple(row):
        raise BackupInvalid(
            Sentence("a content in the export is not what it was (%(name)s); use another copy of it", name=part.name)
        )
    return found.size


def _modernise(path: Path) -> None:
    """Bring the file to this release's schema."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in migrations.statements_of_file(len(migrations.all_migrations()), after=schema_number(file)):
            file.execute(statement)


def _put_contents(places: Places, database: Path, folder: Path, tenant_id: str, course: Course) -> dict[str, str]:
    """Bytes come before their rows; what no row leads to in the end is collected.

    Answers new places by old ones, also where there are no bytes: never is a place believed that the file names.
    """
    lie_at = {}
    with opened_snapshot(database) as file:
        found = file.execute("SELECT sha256, place FROM blob").fetchall()
        for number, (sha256, place) in enumerate(found):
            course.refuse_stopping()
            course.tell("contents", number, len(found))
            if not SHA256.fullmatch(sha256):
                raise BackupInvalid("the export names contents as we do not; do not use this file")
            path, lie_at[place] = folder / sha256, f"{tenant_id}/{sha256[:2]}/{sha256}.{secrets.token_hex(6)}"
            if path.is_file():
                receiver = places.receiver()
                with path.open("rb") as source:
                    for piece in iter(partial(source.read, 1 << 20), b""):
                        receiver.write(piece)
                places.adopt(receiver.finish().path, lie_at[place])
    return lie_at


def _write(
    scope: TenantScope,
    resealing: Resealing,
    request: ImportRequest,
    manifest: dict[str, Any],
    database: Path,
    lie_at: Names,
) -> tuple[int, tuple[str, ...]]:
    """Inside a write: every row of the tenant; answers how many processes pause and which logins are unknown here."""
    _refuse_known(scope.tenant_id)
    told = manifest["tenant"]
    with opened_snapshot(database) as file:
        source = FileSource(file.execute)
        tables = {str(row[0]): entity_tables.new_table_name() for row in source.rows("SELECT table_name FROM collection")}
        own = told["name"] if scope.tenant_id == told["id"] else f"{told['name']} ({scope.tenant_id})"
        name, now = request.title or own, clock.now_ms()
        insert_rows("tenant", ("id", "name", "kind", "created_at"), [(scope.tenant_id, name[:200], told["kind"], now)])
        for statement in entity_statements(source, sqlite=db.is_sqlite()):
            db.execute(_renamed(statement, tables))
        with references_later(tables.values()):
            for table in source.tables():
                if table in TAKEN:
                    _insert(source, table, NUMBERED.get(table), _changes(table, scope.tenant_id, tables, lie_at))
            for old, new in tables.items():
                _insert(source, old, None, {}, into=new)
    _index_words(scope)
    trail = audit.rename_chain(scope, told["id"])
    strangers = tuple(each["login"] for each in manifest["people"] if not _add(scope, each))
    if request.owner:
        people.place_member(scope, request.owner, "owner", approver=False)
    paused = settle(scope, resealing, active=request.active)
    audit.record(scope, "tenant.import", scope.tenant_id, {"from": told["id"], "made_at": manifest["made_at"], **_broken(trail)})
    return paused, strangers


Change = Callable[[Any], Any]


def _changes(table: str, tenant_id: str, tables: Names, lie_at: Names) -> dict[str, Change]:
    """How columns change on their way, by name."""
    changes: dict[str, Change] = {"tenant_id": lambda _: tenant_id}
    if table == "collection":
        changes |= {"table_name": lambda old: tables[old], "stamp": lambda _: secrets.token_hex(8)}
    if table == "blob":
        changes |= {
            "place": lambda old: lie_at[old],
            "touched_at": lambda _: clock.now_ms(),
        }
    return changes


def _insert(source: FileSource, table: str, number: str | None, changes: Mapping[str, Change], into: str | None = None) -> None:
    columns = [column for column in source.columns(table) if column != number]
    listed = ", ".join(f'"{column}"' for column in columns)
    order = f' ORDER BY "{number}"' if number else ""
    rows = source.rows(f'SELECT {listed} FROM "{table}"{order}')  # noqa: S608  # names of our own
    at = {columns.index(name): change for name, change in changes.items() if name in columns}
    insert_rows(into or table, columns, _changed(rows, at))


def _changed(rows: Iterator[tuple[Any, ...]], at: Mapping[int, Change]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield tuple(at[i](value) if i in at else value for i, value in enumerate(row))


def _renamed(statement: str, tables: Names) -> str:
    for old, new in tables.items():
        statement = statement.replace(old, new)
    return statement


def _index_words(scope: TenantScope) -> None:
    if db.is_sqlite():
        for table in SEARCHED:
            words = f"SELECT id, words FROM {table} WHERE tenant_id = ? AND words IS NOT NULL"  # noqa: S608
            db.execute(f"INSERT INTO {table}_index (rowid, words) {words}", (scope.tenant_id,))


def _broken(trail: audit.Verdict) -> dict[str, Any]:
    """What the new trail has to say of the one that came: the hashes of a broken one fit afterwards."""
    return {} if trail.intact else {"trail_broken_at": trail.broken_seq, "trail_broken": trail.reason}


def is_known(login: str) -> bool:
    """Whether somebody of that login has an account here."""
    return bool(db.rows("SELECT 1 FROM person WHERE login = ?", (login,)))


def _add(scope: TenantScope, each: Mapping[str, Any]) -> bool:
    """Whether somebody of that login is known here, who is a member now."""
    if not is_known(each["login"]):
        return False
    people.place_member(scope, each["login"], each["role"], approver=each["approver"])
    return True
