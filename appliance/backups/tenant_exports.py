"""Exports one tenant: a snapshot of its rows, its contents, and the names of what is not exported."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.blobs import Places
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .copying import FileSource, Row, RowFilter, Source, copy_rows, create_schema, open_source
from .creation import StoppableReader, protect_contents, write_contents
from .parts import new_file
from .problems import UNCONTROLLED, JobControl
from .snapshots import count_rows, open_snapshot, schema_number
from .tenant_tables import EXPORTED

FORMAT, KIND, TENANT_DATABASE = 1, "tenant", "tenant.db"


def export_tenant(
    scope: TenantScope, places: Places, target: Path, passphrase: str | None, course: JobControl = UNCONTROLLED
) -> dict[str, Any]:
    """Writes a tenant, without its secrets, to a new file and returns the manifest; blocks no other work.

    Raises AlreadyExists, StorageFull, Stopped, or BackupInvalid when the passphrase is too short.
    """
    with new_file(target, passphrase) as parts:
        protect_contents(scope.tenant_id)
        course.report("database", 0, 0)
        with tempfile.TemporaryDirectory(prefix=".gos-export-", dir=target.parent) as folder:
            snapshot = Path(folder, TENANT_DATABASE)
            snapshot.touch(0o600)
            with db.snapshot(), closing(sqlite3.connect(snapshot, isolation_level=None)) as draft:
                tenant_facts = copy_tenant(open_source(), draft, scope.tenant_id)
            with open_snapshot(snapshot) as file:
                manifest: dict[str, Any] = {
                    "format": FORMAT, "kind": KIND, "version": __version__, "made_at": clock.rfc3339(clock.now_ms()),
                    "schema": schema_number(file), "encrypted": passphrase is not None, **tenant_facts,
                    "tables": {name: count for name, count in count_rows(file).items() if count and name != "migration"},
                }  # fmt: skip
                part = parts.add_file(TENANT_DATABASE, snapshot)
                contents = write_contents(StoppableReader(places, course), parts, file, snapshot.parent)
        manifest["parts"] = [{"name": part.name, "size": part.size, "sha256": part.sha256}]
        manifest["contents"] = contents.document()
        parts.finish(manifest)
    return manifest


def copy_tenant(source: Source, file: sqlite3.Connection, tenant_id: str) -> dict[str, Any]:
    """Copies the rows of a tenant into an empty file; returns the parts of the manifest about the tenant.

    Conflict while the tenant is being reset: some of its rows are deleted already.
    """
    _refuse_reset(source, tenant_id)
    file.execute("PRAGMA synchronous=OFF")  # a temporary file
    file.execute("BEGIN")
    create_schema(file, source, tenant_id)
    copy_rows(source, file, "migration")
    copy_rows(source, file, "tenant", RowFilter("id", tenant_id))
    for table in source.tables():
        if table in EXPORTED:
            copy_rows(source, file, table, RowFilter("tenant_id", tenant_id, EXPORTED[table]))
    _leave_deleted_collections(file)
    for (table,) in file.execute("SELECT table_name FROM collection").fetchall():
        copy_rows(source, file, table)
    file.execute("COMMIT")
    return {
        "tenant": dict(zip(("id", "name", "kind"), _tenant(source, tenant_id), strict=True)),
        "secrets": [row[0] for row in source.rows("SELECT name FROM secret WHERE tenant_id = ? ORDER BY name", (tenant_id,))],
        "domains": [row[0] for row in source.rows("SELECT host FROM domain WHERE tenant_id = ? ORDER BY host", (tenant_id,))],
        "people": [{"login": login, "role": role, "approver": bool(approver)} for login, role, approver in source.rows(
            "SELECT p.login, m.role, m.approver FROM membership m JOIN person p ON p.id = m.user_id WHERE m.tenant_id = ? "
            "ORDER BY p.login", (tenant_id,))],
    }  # fmt: skip


def _leave_deleted_collections(file: sqlite3.Connection) -> None:
    """Leave out collections that are deleted, and whose entities are just being removed."""
    if "removal_lease" not in FileSource(file.execute).columns("collection"):
        return  # a backup of an earlier release
    deleted = file.execute("SELECT table_name FROM collection WHERE removal_lease IS NOT NULL").fetchall()
    for (table,) in deleted:
        file.execute(f'DROP TABLE "{table}"')
        file.execute("DELETE FROM entity_change WHERE collection = ?", (table,))
    file.execute("DELETE FROM collection WHERE removal_lease IS NOT NULL")


def _refuse_reset(source: Source, tenant_id: str) -> None:
    is_reset = "SELECT 1 FROM tenant WHERE id = ? AND reset_at > 0"
    if "reset_at" in source.columns("tenant") and [*source.rows(is_reset, (tenant_id,))]:
        raise Conflict(Sentence(
            "the tenant %(tenant)s is being reset, and only a part of it is left; export it later, or use another backup",
            tenant=repr(tenant_id),
        ))  # fmt: skip


def _tenant(source: Source, tenant_id: str) -> Row:
    (row,) = source.rows("SELECT id, name, kind FROM tenant WHERE id = ?", (tenant_id,))
    return row
