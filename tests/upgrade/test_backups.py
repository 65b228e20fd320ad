"""A backup and a tenant export of the last development version are restored and imported by this release.

`databases/0075.gosb` and `0075.gost` were written by that version: the tenant `demo` with the starter solution, executions, a
document and a WebApp.  `0075.key` is the key file of its data folder.
"""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from appliance.backups import ImportRequest, SecretReplacement, snapshots, tenant_imports, verification
from appliance.backups.problems import BackupInvalid
from appliance.core.database import db
from appliance.migrations import BASELINE, development, last_number
from appliance.tenants import service
from tests.backups.conftest import make_world, restore
from tests.upgrade.make import FOLDER

BACKUP, EXPORT, KEY = (FOLDER / f"0075.{ending}" for ending in ("gosb", "gost", "key"))
LEDGER = [(number,) for number in range(BASELINE, last_number() + 1)]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_backup_is_restored(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = "" if dialect == "sqlite" else request.getfixturevalue("cluster").make_database()
    world = make_world(tmp_path / "data", url)
    result = restore(BACKUP, world, passphrase=None, key_file=KEY)
    assert result.manifest["schema"] == development.LAST
    with world.opened() as sealer:
        assert db.rows("SELECT number FROM migration ORDER BY number") == LEDGER
        assert db.rows("SELECT process_id, status FROM execution ORDER BY process_id") == [
            ("flaky", "failed"), ("order-intake", "succeeded"),
        ]  # fmt: skip
        assert service.unseal_secret(service.system_scope("demo"), sealer, "erp") == "s3cret"


def test_an_export_is_imported(tmp_path: Path) -> None:
    world = make_world(tmp_path / "data")
    with world.opened() as sealer:
        request = ImportRequest(EXPORT, name="copy")
        done = tenant_imports.import_tenant(world.places, SecretReplacement(sealer), request, world.config.data)
        assert (done.manifest["schema"], done.tenant_id) == (development.LAST, "copy")
        assert db.rows("SELECT name, folder FROM document WHERE tenant_id = 'copy'") == [("readme.md", "notes")]
        assert db.rows("SELECT id, published_version FROM webapp WHERE tenant_id = 'copy'") == [("shop", 1)]


def test_data_of_an_incomplete_development_version_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path / "data")
    restore(BACKUP, world, passphrase=None, key_file=KEY)
    with world.opened():
        for statement in ("DELETE FROM migration", "INSERT INTO migration VALUES (74, 'agent_pauses', 1)"):
            db.write(partial(db.execute, statement))
        with pytest.raises(BackupInvalid, match="start commit c5677043 of 24 November 2026 on that data once"):
            world.backup(tmp_path / "incomplete.gosb")
    with closing(sqlite3.connect(tmp_path / "data" / "gos.db")) as file, pytest.raises(BackupInvalid, match="cannot upgrade"):
        snapshots.schema_number(file)


def test_a_backup_verifies() -> None:
    assert verification.verify_backup(BACKUP, None)["tables"]["migration"] == development.LAST
