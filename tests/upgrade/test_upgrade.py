"""Databases of earlier releases, with a row in every table, are upgraded by this release without loss.

`databases/` has the files of each release as `make` wrote them, for SQLite and PostgreSQL.  0075 is the last development version
before the baseline.
"""

import lzma
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from appliance import migrations
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.migrations import BASELINE, development, last_number, sequence
from tests.core.conftest import committed
from tests.migrations.test_upgrading import KILLED, SCHEMA
from tests.store.cluster import Cluster
from tests.upgrade.make import FOLDER, count_rows, list_tables

DROPPED = {"secret_use": 101}
"""Tables that a migration drops, by its number."""
INSERTED = {"tenant": 126}
"""Tables into which a migration inserts a row, by its number."""
FILES = sorted(path.name for path in FOLDER.glob("*.xz"))
STATEMENTS = {75: [1, 2, 3, 4, 5], 100: [1, 2, 3]}
"""The statements of the upgrade before which it is killed, by the number of the database."""
SQLITE = [name for name in FILES if name.endswith(".db.xz")]


@cache
def content_of(name: str) -> bytes:
    return lzma.decompress((FOLDER / name).read_bytes())


def number_of(name: str) -> int:
    return int(name.partition(".")[0])


def unpack(name: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a database with the content of the file."""
    if name in SQLITE:
        (folder / "gos.db").write_bytes(content_of(name))
        return f"sqlite:///{folder}/gos.db"
    cluster: Cluster = request.getfixturevalue("cluster")
    url = cluster.make_database()
    subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", url], input=content_of(name), check=True, stdout=subprocess.DEVNULL)
    return url


@contextmanager
def opened(url: str) -> Iterator[None]:
    db.open_database(url)
    try:
        yield
    finally:
        db.close_database()


@dataclass(frozen=True)
class OldDatabase:
    """A database of an earlier release: its URL, its last migration, and the counts of its rows."""

    url: str
    number: int
    counts: dict[str, int]

    def counts_after(self, number: int) -> dict[str, int]:
        """What its counts must be once that migration has been applied."""
        ledger = {"migration": number - BASELINE + 1}
        counts = {table: count for table, count in self.counts.items() if DROPPED.get(table, number + 1) > number}
        more = {table: counts[table] + 1 for table, inserting in INSERTED.items() if self.number < inserting <= number}
        return counts | more | ledger


    def count_rows(self) -> dict[str, int]:
        """The counts of the open database, without tables that an upgrade has added."""
        return {table: count for table, count in count_rows().items() if table in self.counts}


@pytest.fixture(params=FILES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldDatabase:
    url = unpack(request.param, tmp_path, request)
    with opened(url):
        return OldDatabase(url, number_of(request.param), count_rows())


def test_there_is_a_database_of_the_baseline_and_of_the_last_development_version() -> None:
    assert {"0075.db.xz", "0075.sql.xz", "0100.db.xz", "0100.sql.xz"} <= set(FILES)
    assert sum((FOLDER / name).stat().st_size for name in FILES if number_of(name) <= BASELINE) < 300_000


def test_every_table_has_a_row(old: OldDatabase) -> None:
    assert [table for table, count in old.counts.items() if not count] == []
    created = {
        statement.split("(")[0].split()[2]
        for number in sequence.modules() if number <= max(old.number, BASELINE)
        for statement in sequence.statements(number, is_sqlite=True) if statement.startswith("CREATE TABLE")
    }  # fmt: skip
    assert created | {"migration"} == {table for table in old.counts if not table.startswith("dp_")}


def test_nothing_is_lost(old: OldDatabase) -> None:
    with opened(old.url):
        before = read_samples()
        migrations.migrate()
        assert (migrations.pending(), migrations.newer()) == (0, None)
        assert old.count_rows() == old.counts_after(last_number())
        assert read_samples() == before
        assert migrations.migrate() == []


def read_samples() -> list[Any]:
    """A few values that a migration must not change."""
    return [
        db.rows("SELECT id, status, output, rank FROM execution ORDER BY id"),
        db.rows("SELECT id, kind, scopes, issuer, digest FROM api_key ORDER BY id"),
        db.rows("SELECT name, folder, sha256, metadata FROM document ORDER BY id"),
        db.rows("SELECT id, published_version, grant_digest, allowed_until FROM webapp ORDER BY id"),
        db.rows("SELECT process_id, version, grant_digest, allowed_until FROM process_version ORDER BY process_id, version"),
        db.rows("SELECT seq, hash FROM audit_entry ORDER BY tenant_id, seq"),
    ]


def test_the_schema_is_that_of_a_new_database(old: OldDatabase, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with opened(old.url):
        migrations.migrate()
        upgraded = describe_schema()
    new = f"sqlite:///{tmp_path}/new.db" if old.url.startswith("sqlite") else request.getfixturevalue("cluster").make_database()
    with opened(new):
        migrations.migrate()
        assert upgraded == describe_schema()


def describe_schema() -> dict[str, Any]:
    """The columns, foreign keys, indexes and other constraints of each table, without those of entities."""
    describe = _describe_in_sqlite if db.is_sqlite() else _describe_in_postgresql
    return {table: describe(table) for table in list_tables() if not table.startswith("dp_")}


def _describe_in_sqlite(table: str) -> list[Any]:
    indexes = sorted(db.rows("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ?", (table,)))
    columns, listed, keys = (db.rows(f'PRAGMA {fact}("{table}")') for fact in ("table_xinfo", "index_list", "foreign_key_list"))
    return [indexes, columns, sorted(row[1:] for row in listed), sorted(row[2:] for row in keys)]


def _describe_in_postgresql(table: str) -> list[Any]:
    columns = """SELECT attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid) FROM pg_attribute
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = CAST(? AS regclass) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
    constraints = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = CAST(? AS regclass) ORDER BY 1"
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = ? ORDER BY 1"
    return [db.rows(sql, (table,)) for sql in (columns, constraints, indexes)]


@pytest.mark.parametrize(("name", "statement"), [(name, number) for name in SQLITE for number in STATEMENTS[number_of(name)]])
def test_a_kill_leaves_the_old_or_the_new_schema(name: str, statement: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = unpack(name, tmp_path, request)
    path = tmp_path / "gos.db"
    with opened(url):
        old = OldDatabase(url, number_of(name), count_rows())
    before = (committed(path, SCHEMA), committed(path, "SELECT number FROM migration ORDER BY number"))
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), str(statement)], check=False)
    assert killed.returncode == -9
    ledger = committed(path, "SELECT number FROM migration ORDER BY number")
    assert (committed(path, SCHEMA), ledger) == before or ledger == list(range(BASELINE, ledger[-1] + 1))
    with opened(url):
        assert old.count_rows() == (old.counts if ledger == before[1] else old.counts_after(ledger[-1]))
        migrations.migrate()
        assert old.count_rows() == old.counts_after(last_number())


UPGRADING = """
import sys
from appliance import migrations
from appliance.core.database import db
print("ready", flush=True)
sys.stdin.readline()
db.open_database(sys.argv[1])
print(len(migrations.migrate()), flush=True)
db.close_database()
"""


def test_processes_that_start_at_once_upgrade_once(old: OldDatabase) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", UPGRADING, old.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    applied = [int(child.communicate("go\n", timeout=60)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sum(applied) == last_number() - max(old.number, BASELINE)
    with opened(old.url):
        assert old.count_rows() == old.counts_after(last_number())


# -- the development versions before the baseline


@pytest.fixture(params=[name for name in FILES if number_of(name) == development.LAST])
def unadopted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an open database of the last development version."""
    url = unpack(request.param, tmp_path, request)
    with opened(url):
        yield url


@pytest.mark.usefixtures("unadopted")
def test_a_development_version_gets_the_ledger_of_the_baseline(caplog: pytest.LogCaptureFixture) -> None:
    ((at,),) = db.rows("SELECT applied_at FROM migration WHERE name = 'grants'")
    with pytest.raises(ConfigInvalid, match=r"lacks \d+ migrations of this release"):
        migrations.refuse_other()
    assert migrations.migrate(BASELINE) == []
    assert db.rows("SELECT number, name, applied_at FROM migration") == [(BASELINE, "baseline", at)]
    assert migrations.created_at() == at, "grace periods count from the upgrade that introduced grants"
    assert "the secrets of x x in the tenant" in caplog.text, "a use of a secret that was never adopted is reported"


@pytest.mark.usefixtures("unadopted")
@pytest.mark.parametrize("last", [1, 60, 74])
def test_an_incomplete_development_version_is_refused_unchanged(last: int) -> None:
    db.write(partial(db.execute, "DELETE FROM migration WHERE number > ?", (last,)))
    for refuse in (migrations.migrate, migrations.refuse_other):
        with pytest.raises(ConfigInvalid, match=rf"has {last} of its 75 migrations.*start commit c5677043 of 24 November 2026"):
            refuse()
    assert db.rows("SELECT count(*), max(number) FROM migration") == [(last, last)]


@pytest.mark.usefixtures("unadopted")
def test_a_kill_while_the_ledger_is_replaced_changes_nothing() -> None:
    before = db.rows("SELECT * FROM migration ORDER BY number")

    def adopt_and_fail() -> None:
        development.adopt()
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        db.write(adopt_and_fail)
    assert db.rows("SELECT * FROM migration ORDER BY number") == before
