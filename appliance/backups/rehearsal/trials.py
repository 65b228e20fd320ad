"""One rehearsal: a backup is restored beside the data, started, asked and thrown away.  It needs a process of its own."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.backups.creation import DATABASE
from appliance.backups.parts import BackupSource
from appliance.backups.restoring import ACCESS_TABLES, PlacesOf, RestoreRequest, RestoreResult, restore_backup
from appliance.backups.snapshots import count_rows
from appliance.blobs import sample_contents
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.monitor import verify_trails

from .folders import temporary_folder
from .isolation import isolated_config
from .results import RehearsalResult
from .servers import ask, running_server

SPARE_BYTES = 1 << 30
SAMPLE, LARGEST = 200, 64 << 20
# What a restore empties, and rows about the appliance that made the backup.
_NOT_COMPARED = frozenset({*ACCESS_TABLES, "backup_job", "backup_rehearsal", "tenant_job", "migration"})


class RehearsalFailed(ApplianceError):
    """The backup was restored, but what came out of it is not what went in."""

    code, status = "backup_invalid", 422


@dataclass(frozen=True)
class RehearsalRequest:
    """What is rehearsed; `key_file` is needed for a backup that is not encrypted."""

    source: BackupSource
    passphrase: str | None = None
    key_file: Path | None = None


def rehearse(config: Config, places_of: PlacesOf, request: RehearsalRequest) -> RehearsalResult:
    """Restore a backup into a temporary folder of the data folder, start an appliance on it, and ask it; nothing stays.

    BackupInvalid or RehearsalFailed says what is wrong with the backup, StorageFull that the disk has too little space.
    """
    with temporary_folder(config) as room:
        data, start = room / "data", clock.monotonic()
        isolated = isolated_config(config, data)
        source, key = request.source, request.key_file
        done = restore_backup(
            lambda _: isolated, places_of, RestoreRequest(source, request.passphrase, key, spare_bytes=SPARE_BYTES)
        )  # fmt: skip
        (data / "config.yaml").unlink(missing_ok=True)  # it names the systems of production
        restored = clock.monotonic()
        _compare_counts(data / DATABASE, done)
        counted = clock.monotonic()
        with running_server(config, data, room) as address:
            started = clock.monotonic()
            _ask(address)
            sampled, trails = _check_store(isolated, places_of)
    return RehearsalResult(
        made_at=str(done.manifest["made_at"]), rows=done.rows, contents=int(done.manifest["contents"]["count"]), sampled=sampled,
        trails=trails, restore_ms=round((restored - start) * 1000), start_ms=round((started - counted) * 1000),
    )  # fmt: skip


def _compare_counts(database: Path, done: RestoreResult) -> None:
    """Compare the rows of every table with the manifest, unless migrations of this release have changed tables."""
    if done.migrated:
        return
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as file:
        counts = count_rows(file)
    for table, expected in sorted(done.manifest["tables"].items()):
        if table not in _NOT_COMPARED and counts.get(table) != expected:
            raise RehearsalFailed(Sentence(
                "the table %(table)s has %(count)s rows after the restore, and had %(expected)s in the backup",
                table=table, count=counts.get(table, 0), expected=expected,
            ))


def _ask(address: str) -> None:
    status, _ = ask(f"{address}/console/sign-in")
    if status != 200:
        raise RehearsalFailed(Sentence("the restored appliance answers its sign-in page with %(status)s", status=status))


def _check_store(config: Config, places_of: PlacesOf) -> tuple[int, int]:
    """Compare contents with their sha256, and verify every audit trail; returns how many of each."""
    db.open_database(config.database_url)
    try:
        sampled = sum(1 for each in sample_contents(places_of(config, ""), SAMPLE, LARGEST) if _is_intact(each))
        trails = verify_trails()
    finally:
        db.close_database()
    broken = [tenant_id for tenant_id, status in trails if not status.intact]
    if broken:
        raise RehearsalFailed(Sentence("the audit trail of %(tenants)s is broken in the backup", tenants=", ".join(broken)))
    return sampled, len(trails)


def _is_intact(sample: tuple[str, Any]) -> bool:
    tenant_id, content = sample
    try:
        for _ in content.pieces():
            pass
    except ApplianceError as error:
        raise RehearsalFailed(Sentence(
            "a content of the tenant %(tenant)s is damaged or missing after the restore (sha256 %(sha256)s)",
            tenant=tenant_id, sha256=content.sha256,
        )) from error
    return True

