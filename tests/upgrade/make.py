"""`python -m tests.upgrade.make`: writes databases of this version with a row in every table to `tests/upgrade/databases`.

An appliance runs on SQLite, then on PostgreSQL, with the example data of the screenshots.  Tables that are still empty get a row
of plain values.  The files are named after the last migration; they are made once, for the schema of a release, and kept.
"""

import lzma
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from appliance.core.database import db
from appliance.testing.running import make_config, start
from tests.screenshots.furnishing import LOGIN, furnish
from tests.store.cluster import running_cluster

FOLDER = Path(__file__).parent / "databases"
_VALUES = {"text": "x", "integer": 1, "bigint": 1, "boolean": False, "blob": b"x", "bytea": b"x", "double precision": 1.0}
_TABLES = {
    True: "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%_index%'",
    False: "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
_COLUMNS = """SELECT column_name, data_type, is_nullable = 'NO' AND column_default IS NULL FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position"""
_KEYS = """SELECT c.conname, c.confrelid::regclass::text, a.attname, b.attname FROM pg_constraint c
    CROSS JOIN LATERAL unnest(c.conkey, c.confkey) AS k (own, other)
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.own
    JOIN pg_attribute b ON b.attrelid = c.confrelid AND b.attnum = k.other
    WHERE c.contype = 'f' AND c.conrelid = CAST(? AS regclass)"""


def list_tables() -> list[str]:
    """Every table of the open database, without those behind full-text indexes."""
    return sorted(str(row[0]) for row in db.rows(_TABLES[db.is_sqlite()]))


def count_rows() -> dict[str, int]:
    """The number of rows of each table of the open database."""
    return {table: int(db.rows(f'SELECT count(*) FROM "{table}"')[0][0]) for table in list_tables()}  # noqa: S608


def _required(table: str) -> dict[str, Any]:
    """A plain value for each column that needs one."""
    if db.is_sqlite():
        columns = [
            (row[1], row[2], (row[3] or row[5]) and row[4] is None and "PRIMARY KEY AUTOINCREMENT" not in row[2])
            for row in db.rows(f'PRAGMA table_info("{table}")')
        ]
    else:
        columns = db.rows(_COLUMNS, (table,))
    return {str(name): _VALUES[kind.lower()] for name, kind, is_required in columns if is_required}


def _foreign_keys(table: str) -> dict[Any, tuple[str, list[tuple[str, str]]]]:
    """The referenced table and the pairs of own and referenced columns of each foreign key."""
    if db.is_sqlite():
        rows = [(row[0], row[2], row[3], row[4]) for row in db.rows(f'PRAGMA foreign_key_list("{table}")')]
    else:
        rows = db.rows(_KEYS, (table,))
    keys: dict[Any, tuple[str, list[tuple[str, str]]]] = {}
    for number, other, own_column, other_column in rows:
        keys.setdefault(number, (str(other), []))[1].append((str(own_column), str(other_column)))
    return keys


def fill_empty_tables() -> None:
    """Give every empty table of the open database a row that refers to existing rows."""
    empty = [table for table, count in count_rows().items() if not count]
    while empty:
        for table in empty:
            keys = sorted(_foreign_keys(table).values(), key=lambda key: len(key[1]))
            if not any(other in empty and other != table for other, _ in keys):
                db.write(partial(_insert, table, keys))
        remaining = [table for table, count in count_rows().items() if not count]
        if remaining == empty:
            raise RuntimeError(f"cannot fill {empty}")
        empty = remaining


def _insert(table: str, keys: Any) -> None:
    values = _required(table)
    for other, columns in keys:
        names = ", ".join(f'"{column}"' for _, column in columns)
        row = db.rows(f'SELECT {names} FROM "{other}" LIMIT 1')[0]  # noqa: S608
        values |= dict(zip((own for own, _ in columns), row, strict=True))
    names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
    db.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', tuple(values.values()))  # noqa: S608


def _furnish(url: str) -> int:
    """Fill the database; returns the number of its last migration."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"storage__database": url, "demo__order_system": True, "egress__allow": ["127.0.0.0/8"]}
        running = start(make_config(Path(folder, "data"), console__administrators=[LOGIN], **settings))
        try:
            furnish(running)
        finally:
            running.stop()
    db.open_database(url)
    try:
        fill_empty_tables()
        return int(db.rows("SELECT max(number) FROM migration")[0][0])
    finally:
        db.close_database()


def make_sqlite(folder: Path) -> Path:
    path = folder / "gos.db"
    number, small = _furnish(f"sqlite:///{path}"), folder / "small.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM INTO ?", (str(small),))
    return _write(f"{number:04d}.db.xz", small.read_bytes())


def make_postgresql() -> Path:
    with running_cluster() as cluster:
        url = cluster.make_database()
        number = _furnish(url)
        dump = subprocess.run(["pg_dump", "--no-owner", url], stdout=subprocess.PIPE, check=True).stdout
    return _write(f"{number:04d}.sql.xz", dump)


def _write(name: str, content: bytes) -> Path:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    return FOLDER / name


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for path in (make_sqlite(Path(folder)), make_postgresql()):
            print(path, path.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
