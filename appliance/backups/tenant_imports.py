"""Imports a tenant export: checks all of it first, then writes it in one transaction."""

import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import Any

from appliance import migrations
from appliance.blobs import Places
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.database.loading import defer_foreign_keys, insert_rows
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import tables as entity_tables
from appliance.monitor import audit
from appliance.tenants import people, service

from .copying import SEARCHED, FileSource, entity_statements
from .creation import CONTENTS
from .import_cleanup import SecretReplacement, clean_up
from .parts import MANIFEST, OpenPart, Part, parse_manifest, parts_in, read_small, store_part
from .problems import UNCONTROLLED, BackupInvalid, JobControl, full_disks
from .schema_checks import SHA256, check_schema
from .snapshots import open_snapshot, schema_number
from .tenant_exports import FORMAT, KIND, TENANT_DATABASE
from .tenant_tables import EXPORTED, RENUMBERED
from .verification import check_contents, check_parts, check_rows, refuse_newer

Names = Mapping[str, str]


@dataclass(frozen=True)
class ImportRequest:
    """The options of an import.

    `name` is the tenant's new id, None to keep its id; with `active` its triggers are not paused.  `title` is its display
    name, empty to keep the name; `owner` is the login of an additional owner; `actor` is the importing person.
    """

    path: Path
    passphrase: str | None = None
    name: str | None = None
    active: bool = False
    title: str = ""
    owner: str = ""
    actor: str = "system"


@dataclass(frozen=True)
class ImportResult:
    """The result of an import: `paused` counts processes, `unknown_logins` are logins without an account here."""

    tenant_id: str
    manifest: dict[str, Any]
    paused: int
    unknown_logins: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


def import_tenant(places: Places, resealing: SecretReplacement, request: ImportRequest, room: Path) -> ImportResult:
    """Imports an export into the open database, as a whole or not at all.

    Ids are kept.  Unfinished work is cancelled, because it may continue in the original tenant; triggers are paused unless the
    request is `active`.  Raises AlreadyExists, BackupInvalid or StorageFull.
    """
    with tempfile.TemporaryDirectory(prefix=".gos-import-", dir=room) as folder:
        with request.path.open("rb") as file:
            manifest = unpack_export(file, request, Path(folder))
        return write_tenant(places, resealing, request, UnpackedExport(Path(folder), manifest))


@dataclass(frozen=True)
class UnpackedExport:
    """An export that was read and checked completely, unpacked in its own folder."""

    folder: Path
    manifest: dict[str, Any]


def write_tenant(
    places: Places, resealing: SecretReplacement, request: ImportRequest, export: UnpackedExport, course: JobControl = UNCONTROLLED
) -> ImportResult:
    """Imports an unpacked export, like `import_tenant`."""
    with full_disks():
        tenant_id = check_new_id(request.name or export.manifest["tenant"]["id"])
        database = export.folder / TENANT_DATABASE
        new_places = _store_contents(places, database, export.folder / "contents", tenant_id, course)
        course.refuse_stopping()
        course.report("writing", 0, 0)
        scope = service.system_scope(tenant_id, request.actor)

        def write() -> ImportResult:
            result = ImportResult(
                tenant_id, export.manifest, *_write(scope, resealing, request, export.manifest, database, new_places)
            )
            course.conclude(result)
            return result

        return db.write(write)


def check_new_id(tenant_id: str) -> str:
    """Returns the id; raises ValidationFailed when it is invalid, AlreadyExists when it is in use."""
    ids.check_slug(tenant_id, pointer="/name", longest=24)
    _refuse_existing(tenant_id)
    return tenant_id


def _refuse_existing(tenant_id: str) -> None:
    service.check_free(tenant_id, pointer="/name")


def unpack_export(
    file: BufferedReader, request: ImportRequest, folder: Path, course: JobControl = UNCONTROLLED
) -> dict[str, Any]:
    """Unpacks an export, read from its start, into a folder, checks it and migrates it to this release's schema; returns the
    manifest.

    Raises BackupInvalid, StorageFull or Stopped.
    """
    with full_disks(), parts_in(file, request.path, request.passphrase) as parts:
        manifest = _unpack(parts, request.path, folder, course)
        _migrate_file(folder / TENANT_DATABASE)
    return manifest


def _unpack(parts: Iterator[OpenPart], path: Path, folder: Path, course: JobControl) -> dict[str, Any]:
    manifest: dict[str, Any] | None = None
    count = size = 0
    first = next(parts, None)
    if first is None or first.name != TENANT_DATABASE:
        raise BackupInvalid(
            Sentence("%(name)s is not a tenant export; use `gos restore` for the backup of an appliance", name=path.name)
        )
    stored = {TENANT_DATABASE: store_part(first, folder / TENANT_DATABASE)}
    with open_snapshot(folder / TENANT_DATABASE) as file:
        refuse_newer(file)
        check_schema(file)
        for part in parts:
            course.refuse_stopping()
            if part.name == MANIFEST and manifest is None:
                manifest = parse_manifest(read_small(part))
            elif part.name.startswith(CONTENTS) and manifest is None:
                count, size = count + 1, size + _store_content(file, part, folder)
                course.report("reading", count, 0)
            else:
                raise BackupInvalid(Sentence(
                    "the export contains an unknown part %(name)s; use the release that created it", name=repr(part.name[:80])
                ))
        if manifest is None:
            raise BackupInvalid("the export is incomplete: its manifest is missing; use another copy of it")
        check_parts(manifest, stored, FORMAT, KIND)
        check_contents(manifest, count, size)
        check_rows(manifest, file, count)
    return manifest


def _store_content(file: sqlite3.Connection, part: OpenPart, folder: Path) -> int:
    row = file.execute("SELECT sha256, size FROM blob WHERE place = ?", (part.name.removeprefix(CONTENTS),)).fetchone()
    if row is not None and not SHA256.fullmatch(str(row[0])):  # it becomes a file name
        raise BackupInvalid("the export has contents with invalid names; do not use this file")
    stored = Part("", 0, "") if row is None else store_part(part, folder / "contents" / str(row[0]))
    if row is None or (stored.sha256, stored.size) != tuple(row):
        raise BackupInvalid(
            Sentence("a content of the export has changed (%(name)s); use another copy of it", name=part.name)
        )
    return stored.size


def _migrate_file(path: Path) -> None:
    """Migrates the file to this release's schema."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in migrations.statements_of_file(migrations.last_number(), after=schema_number(file)):
            file.execute(statement)


def _store_contents(places: Places, database: Path, folder: Path, tenant_id: str, course: JobControl) -> dict[str, str]:
    """Moves the contents to the store before their rows; if the import fails, garbage collection removes them.

    Returns new places by old ones, also for missing contents, because the places in the file are not trusted.
    """
    new_places = {}
    with open_snapshot(database) as file:
        rows = file.execute("SELECT sha256, place FROM blob").fetchall()
        for number, (sha256, place) in enumerate(rows):
            course.refuse_stopping()
            course.report("contents", number, len(rows))
            if not SHA256.fullmatch(sha256):
                raise BackupInvalid("the export has contents with invalid names; do not use this file")
            path, new_places[place] = folder / sha256, f"{tenant_id}/{sha256[:2]}/{sha256}.{secrets.token_hex(6)}"
            if path.is_file():
                receiver = places.receiver()
                with path.open("rb") as source:
                    for piece in iter(partial(source.read, 1 << 20), b""):
                        receiver.write(piece)
                path.unlink()  # so that a large export does not need the space twice
                places.adopt(receiver.finish().path, new_places[place])
    return new_places


def _write(
    scope: TenantScope,
    resealing: SecretReplacement,
    request: ImportRequest,
    manifest: dict[str, Any],
    database: Path,
    new_places: Names,
) -> tuple[int, tuple[str, ...]]:
    """Inserts every row of the tenant, inside a write; returns the number of paused processes and the unknown logins."""
    _refuse_existing(scope.tenant_id)
    tenant = manifest["tenant"]
    with open_snapshot(database) as file:
        source = FileSource(file.execute)
        tables = {str(row[0]): entity_tables.new_table_name() for row in source.rows("SELECT table_name FROM collection")}
        own = tenant["name"] if scope.tenant_id == tenant["id"] else f"{tenant['name']} ({scope.tenant_id})"
        name, now = request.title or own, clock.now_ms()
        insert_rows("tenant", ("id", "name", "kind", "created_at"), [(scope.tenant_id, name[:200], tenant["kind"], now)])
        for statement in entity_statements(source, sqlite=db.is_sqlite()):
            db.execute(_renamed(statement, tables))
        with defer_foreign_keys(tables.values()):
            for table in source.tables():
                if table in EXPORTED:
                    _insert(source, table, RENUMBERED.get(table), _changes(table, scope.tenant_id, tables, new_places))
            for old, new in tables.items():
                _insert(source, old, None, {}, into=new)
    _index_words(scope)
    trail = audit.rename_chain(scope, tenant["id"])
    unknown_logins = tuple(each["login"] for each in manifest["people"] if not _add_member(scope, each))
    if request.owner:
        people.store_member(scope, request.owner, "owner", approver=False)
    paused = clean_up(scope, resealing, active=request.active)
    details = {"from": tenant["id"], "made_at": manifest["made_at"], **_trail_details(trail)}
    audit.record(scope, "tenant.import", scope.tenant_id, details)
    return paused, unknown_logins


Change = Callable[[Any], Any]


def _changes(table: str, tenant_id: str, tables: Names, new_places: Names) -> dict[str, Change]:
    """The conversions of column values, by column name."""
    changes: dict[str, Change] = {"tenant_id": lambda _: tenant_id}
    if table == "collection":
        changes |= {"table_name": lambda old: tables[old], "stamp": lambda _: secrets.token_hex(8)}
    if table == "blob":
        changes |= {
            "place": lambda old: new_places[old],
            "touched_at": lambda _: clock.now_ms(),
        }
    if table == "document":
        ((last,),) = db.rows("SELECT COALESCE(MAX(number), 0) FROM document")
        numbers = count(last + 1)
        changes["number"] = lambda _: next(numbers)
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
        names = "SELECT number, name FROM document WHERE tenant_id = ?"
        db.execute(f"INSERT INTO document_name_index (rowid, name) {names}", (scope.tenant_id,))


def _trail_details(trail: audit.ChainStatus) -> dict[str, Any]:
    """The audit details of a broken imported trail, whose hashes fit again after the import; empty for an intact one."""
    return {} if trail.intact else {"trail_broken_at": trail.broken_seq, "trail_broken": trail.reason}


def has_account(login: str) -> bool:
    """Whether an account with that login exists here."""
    return bool(db.rows("SELECT 1 FROM person WHERE login = ?", (login,)))


def _add_member(scope: TenantScope, person: Mapping[str, Any]) -> bool:
    """Makes the person a member if the login has an account here; whether it has."""
    if not has_account(person["login"]):
        return False
    people.store_member(scope, person["login"], person["role"], approver=person["approver"])
    return True
