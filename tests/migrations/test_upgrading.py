"""An empty database gets every migration, each as a whole or not at all."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from appliance import migrations
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.migrations import BASELINE, last_number, sequence
from tests.core.conftest import committed

KILLED = """
import os, sys
from appliance import migrations
from appliance.core.database import db
db.open_database("sqlite:///" + sys.argv[1])
left = int(sys.argv[2])
execute = db.execute
def counting(sql, params=()):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
    return execute(sql, params)
db.execute = counting
migrations.migrate()
db.close_database()
"""
"""A process that migrates a database, and is killed before its n-th statement."""
SCHEMA = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"


def names() -> list[str]:
    return [name.removeprefix("m") for name in sequence.modules().values()]


@pytest.mark.usefixtures("empty_database")
def test_an_empty_database_gets_every_migration_once() -> None:
    assert (migrations.is_begun(), migrations.pending()) == (False, len(names()))
    assert migrations.migrate() == names()
    assert (migrations.migrate(), migrations.pending(), migrations.newer()) == ([], 0, None)
    assert db.rows("SELECT number FROM migration ORDER BY number") == [(number,) for number in sequence.modules()]
    assert clock.now_ms() - 600_000 < migrations.created_at() <= clock.now_ms()


@pytest.mark.usefixtures("empty_database")
def test_a_migration_can_be_the_last_one_applied() -> None:
    assert migrations.migrate(BASELINE) == ["0100_baseline"]
    assert migrations.pending() == last_number() - BASELINE
    migrations.migrate()
    assert migrations.pending() == 0


@pytest.mark.parametrize("statement", [1, 2, 3, 100, 200])
def test_a_kill_leaves_nothing_and_the_next_start_begins_again(tmp_path: Path, statement: int) -> None:
    path, whole = tmp_path / "gos.db", tmp_path / "whole.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), str(statement)], check=False)
    assert (killed.returncode, committed(path, SCHEMA)) == (-9, [])
    for each in (path, whole):
        db.open_database(f"sqlite:///{each}")
        migrations.migrate()
        db.close_database()
    assert committed(path, SCHEMA) == committed(whole, SCHEMA) != []


@pytest.mark.usefixtures("empty_database")
def test_a_newer_database_is_refused() -> None:
    migrations.migrate()
    db.write(partial(db.execute, "INSERT INTO migration VALUES (9999, 'future', 0)"))
    assert migrations.newer() == 9999
    for refuse in (migrations.migrate, migrations.refuse_other, migrations.refuse_unsupported):
        with pytest.raises(ConfigInvalid, match=rf"migration 9999, this release knows {last_number()}: install the newer release"):
            refuse()


def test_every_tenant_table_goes_with_its_tenant(tmp_path: Path) -> None:
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    try:
        migrations.migrate()
        tables = [row[0] for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
        with_tenant = [table for table in tables if "tenant_id" in {row[1] for row in db.rows(f"PRAGMA table_info({table})")}]
        assert len(with_tenant) >= 80
        for table in with_tenant:
            keys = db.rows(f"PRAGMA foreign_key_list({table})")
            assert any(row[3] == "tenant_id" and row[6] == "CASCADE" for row in keys), table
    finally:
        db.close_database()
