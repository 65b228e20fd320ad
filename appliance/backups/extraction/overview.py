"""What a backup contains: its moment, and the tenants with their counts."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from appliance.backups.copying import ENTITIES, FileSource
from appliance.backups.counting import ResourceCount, count_in_manifest
from appliance.backups.parts import BackupSource
from appliance.backups.snapshots import count_rows, schema_number
from appliance.core.scope import APPLIANCE

from .reading import open_backup


@dataclass(frozen=True)
class TenantOverview:
    """A tenant, the counts of what it has, and the bytes of its contents."""

    id: str
    name: str
    kind: str
    counts: tuple[ResourceCount, ...]
    contents: int
    bytes: int


@dataclass(frozen=True)
class BackupOverview:
    """A backup; what only its manifest says is None when the file is damaged, for the reason `damage`."""

    made_at: str | None
    version: str | None
    installation: str | None
    schema: int
    is_sealed: bool
    rows: int
    tenants: tuple[TenantOverview, ...]
    damage: str | None


def describe_backup(source: BackupSource, passphrase: str | None, room: Path | None = None) -> BackupOverview:
    """What a backup contains.  It is read to its end, but only its database is checked; BackupInvalid."""
    with open_backup(source, passphrase, room) as backup:
        tables = count_rows(backup.file)
        tenants = tuple(_describe_tenants(backup.file))
        for _ in backup.read({}):
            continue
        backup.refuse_changed_database()
        manifest = backup.manifest or {}
        return BackupOverview(
            made_at=backup.made_at(), version=manifest.get("version"), installation=manifest.get("installation"),
            schema=schema_number(backup.file), is_sealed=backup.is_sealed, rows=sum(tables.values()), tenants=tenants,
            damage=backup.damage,
        )  # fmt: skip


def _describe_tenants(file: sqlite3.Connection) -> list[TenantOverview]:
    source, result = FileSource(file.execute), []
    tables = [table for table in source.tables() if "tenant_id" in source.columns(table)]
    rows = file.execute("SELECT id, name, kind FROM tenant WHERE id <> ? ORDER BY id", (APPLIANCE,)).fetchall()
    for tenant_id, name, kind in rows:
        counts = {
            table: int(file.execute(f'SELECT count(*) FROM "{table}" WHERE tenant_id = ?', (tenant_id,)).fetchone()[0])  # noqa: S608
            for table in tables
        }
        for (table,) in file.execute("SELECT table_name FROM collection WHERE tenant_id = ?", (tenant_id,)).fetchall():
            if ENTITIES.fullmatch(table):
                counts[table] = int(file.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608
        sql = "SELECT count(*), COALESCE(SUM(size), 0) FROM blob WHERE tenant_id = ?"
        contents, size = file.execute(sql, (tenant_id,)).fetchone()
        result.append(TenantOverview(tenant_id, name, kind, tuple(count_in_manifest(counts)), int(contents), int(size)))
    return result
