"""Takes one tenant out of a backup, as the export that `gos tenant import` reads."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.backups.copying import FileSource
from appliance.backups.creation import CONTENTS, Contents
from appliance.backups.parts import BackupSource, PartsWriter, new_file
from appliance.backups.snapshots import check_integrity, count_rows, open_snapshot, schema_number
from appliance.backups.tenant_exports import FORMAT, KIND, TENANT_DATABASE, copy_tenant
from appliance.core import clock
from appliance.core.errors import NotFound
from appliance.core.scope import APPLIANCE
from appliance.core.sentences import Sentence

from .reading import OpenedBackup, contents_of, open_backup


def extract_tenant(source: BackupSource, passphrase: str | None, tenant_id: str, target: Path) -> dict[str, Any]:
    """Writes a tenant of a backup, without its secrets, to a new file and returns that file's manifest.

    The file is encrypted with the same passphrase if the backup is.  Only the database and the contents of the tenant must be
    intact: of these contents, the manifest lists those that are not.  Raises NotFound, AlreadyExists, StorageFull, BackupInvalid.
    """
    with open_backup(source, passphrase, target.parent) as backup:
        _refuse_unknown(backup.file, tenant_id)
        with new_file(target, passphrase if backup.is_sealed else None) as parts:
            draft = backup.folder / TENANT_DATABASE
            draft.touch(0o600)
            with closing(sqlite3.connect(draft, isolation_level=None)) as writable:
                facts = copy_tenant(FileSource(backup.file.execute), writable, tenant_id)
            with open_snapshot(draft) as file:
                check_integrity(file)
                manifest: dict[str, Any] = {
                    "format": FORMAT, "kind": KIND, "version": __version__, "schema": schema_number(file),
                    "encrypted": backup.is_sealed, **facts,
                    "tables": {name: count for name, count in count_rows(file).items() if count and name != "migration"},
                }  # fmt: skip
                part = parts.add_file(TENANT_DATABASE, draft)
                contents = _write_contents(backup, parts, file)
            manifest["made_at"] = backup.made_at() or clock.rfc3339(_last_moment(backup.file))
            manifest["parts"] = [{"name": part.name, "size": part.size, "sha256": part.sha256}]
            manifest["contents"] = contents.document()
            parts.finish(manifest)
    return manifest | {"damage": backup.damage}


def _write_contents(backup: OpenedBackup, parts: PartsWriter, file: sqlite3.Connection) -> Contents:
    contents = Contents()
    for each, spool in backup.read(contents_of(file)):
        parts.add(f"{CONTENTS}{each.place}", each.size, iter(partial(spool.read, 1 << 20), b""))
        contents.count += 1
        contents.bytes += each.size
    backup.refuse_changed_database()
    listed = (backup.manifest or {}).get("contents", {})
    contents.deleted = sorted(backup.missing & set(listed.get("gone", ())))
    contents.damaged = sorted(backup.missing - set(contents.deleted))
    return contents


def _refuse_unknown(file: sqlite3.Connection, tenant_id: str) -> None:
    ids = [str(row[0]) for row in file.execute("SELECT id FROM tenant WHERE id <> ? ORDER BY id", (APPLIANCE,))]
    if tenant_id not in ids:
        raise NotFound(Sentence(
            "the backup has no tenant %(tenant)s; it has %(ids)s", tenant=repr(tenant_id), ids=", ".join(ids) or "none",
        ))  # fmt: skip


def _last_moment(file: sqlite3.Connection) -> int:
    """When something was last recorded in an audit trail: the backup was made then or later."""
    return int(file.execute("SELECT COALESCE(MAX(at), 0) FROM audit_entry").fetchone()[0])
