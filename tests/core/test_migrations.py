"""The schema moves forward in whole steps, also when it is killed in the middle."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.core import db, migrations
from appliance.core.errors import ConfigInvalid
from tests.core.conftest import committed

KILLED = """
import os, sys
from appliance.core import db, migrations
db.open_database("sqlite:///" + sys.argv[1])
done = 0
execute = db.execute
def counting(sql, params=()):
    global done
    done += 1
    if done == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    return execute(sql, params)
db.execute = counting
migrations.migrate()
db.close_database()
"""
TABLES = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"


def schema_of(path: Path) -> list[str]:
    return committed(path, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The schema of a database that was made without disturbance."""
    path = tmp_path_factory.mktemp("fresh") / "gos.db"
    db.open_database(f"sqlite:///{path}")
    migrations.migrate()
    db.close_database()
    return schema_of(path)


def test_an_empty_database_gets_every_migration_once(tmp_path: Path) -> None:
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    try:
        assert migrations.pending() == len(migrations.all_migrations())
        names = [f"{m.number:04d}_{m.name}" for m in migrations.all_migrations()]
        assert migrations.migrate() == names
        assert (migrations.migrate(), migrations.pending()) == ([], 0)
    finally:
        db.close_database()


@pytest.mark.parametrize("statement", [1, 2, 3, 7, 16, 25])
def test_a_kill_in_the_middle_leaves_whole_steps_and_the_next_start_goes_on(
    tmp_path: Path, fresh: list[str], statement: int
) -> None:
    path = tmp_path / "gos.db"
    command = [sys.executable, "-c", KILLED, str(path), str(statement)]
    assert subprocess.run(command, check=False).returncode == -9
    done = committed(path, "SELECT number FROM migration ORDER BY number") if "migration" in committed(path, TABLES) else []
    assert done == list(range(1, len(done) + 1))
    expected = {"migration"} if done or statement > 1 else set()
    for migration in migrations.all_migrations()[: len(done)]:
        expected |= {s.split()[2] for s in migration.statements if s.lstrip().startswith("CREATE TABLE")}
    tables = committed(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert set(tables) == expected
    db.open_database(f"sqlite:///{path}")
    migrations.migrate()
    db.close_database()
    assert schema_of(path) == fresh


def test_a_newer_database_is_refused(database: Path) -> None:
    db.write(lambda: db.execute("INSERT INTO migration VALUES (9999, 'future', 0)"))
    with pytest.raises(ConfigInvalid, match="install the newer release"):
        migrations.migrate()


def test_every_tenant_table_goes_with_its_tenant(database: Path) -> None:
    tables = [row[0] for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    columns = {table: {row[1] for row in db.rows(f"PRAGMA table_info({table})")} for table in tables}
    with_tenant = [table for table in tables if "tenant_id" in columns[table]]
    assert len(with_tenant) >= 10
    for table in with_tenant:
        keys = db.rows(f"PRAGMA foreign_key_list({table})")
        assert any(row[3] == "tenant_id" and row[6] == "CASCADE" for row in keys), table
