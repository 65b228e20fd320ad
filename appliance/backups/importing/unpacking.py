"""Unpacks the file of an export into a folder, and checks all of it before anything is stored."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from typing import Any

from appliance import migrations
from appliance.backups.creation import CONTENTS
from appliance.backups.parts import MANIFEST, OpenPart, Part, parse_manifest, parts_in, read_small, store_part
from appliance.backups.problems import UNCONTROLLED, BackupInvalid, JobControl, full_disks
from appliance.backups.schema_checks import SHA256, check_schema
from appliance.backups.snapshots import open_snapshot, schema_number
from appliance.backups.tenant_exports import FORMAT, KIND, TENANT_DATABASE
from appliance.backups.verification import check_contents, check_parts, check_rows, refuse_newer
from appliance.core.sentences import Sentence

from .requests import ImportRequest


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
