"""SQLite: the connector contract, file handling, and statements that callers must not run."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gos_connector_sql import SqliteConnector

from appliance.connectors.contract import (
    AddressNotAllowed,
    ConfigError,
    Connector,
    ConnectorError,
    Context,
    Rejected,
    TransientError,
)
from appliance.connectors.testing import ConnectorContract, open_context

SAMPLE = "CREATE TABLE gos_sample (id INTEGER PRIMARY KEY, name TEXT NOT NULL, big INTEGER, raw BLOB)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed folder with a database of three rows."""
    folder = tmp_path / "shared"
    folder.mkdir()
    create_database(folder / "shop.db")
    return folder


def create_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(SAMPLE)
        connection.executemany("INSERT INTO gos_sample (id, name) VALUES (?, ?)", [(1, "Ann"), (2, "Bob"), (3, "Cyd")])
    connection.close()


def names(root: Path) -> list[str]:
    connection = sqlite3.connect(root / "shop.db")
    try:
        return [row[0] for row in connection.execute("SELECT name FROM gos_sample ORDER BY id")]
    finally:
        connection.close()


def settings_for(root: Path, **changed: str) -> dict[str, Any]:
    return {"folder": str(root), "file": "shop.db", **changed}


@pytest.fixture
def it(root: Path) -> Iterator[Connector]:
    it = SqliteConnector(settings_for(root))
    yield it
    it.close()


@pytest.fixture
def ctx(root: Path) -> Iterator[Context]:
    with open_context(folders=[str(root)], seconds=30) as ctx:
        yield ctx


class TestSqlite(ConnectorContract):
    connector = SqliteConnector

    @pytest.fixture
    def settings(self, root: Path) -> dict[str, Any]:
        return settings_for(root)

    @pytest.fixture
    def broken_settings(self, root: Path) -> dict[str, Any]:
        return settings_for(root, file="nothing.db")

    @pytest.fixture
    def ctx(self, root: Path) -> Iterator[Context]:
        with open_context(folders=[str(root)], seconds=30) as ctx:
            yield ctx


def test_check_reports_version_and_tables(it: Connector, ctx: Context) -> None:
    assert it.check(ctx) == f"SQLite answers: {sqlite3.sqlite_version}, 1 tables and views"


def test_values_are_bound_and_returned_unchanged(it: Connector, ctx: Context) -> None:
    hostile = "O'Hara\"; DROP TABLE gos_sample; -- ☃"
    row = {"id": 9, "name": hostile, "big": 2**60, "raw": None}
    assert it.call("insert", {"table": "gos_sample", "rows": [row]}, ctx) == {"affected": 1}
    result = it.call("query", {"sql": "SELECT * FROM gos_sample WHERE name = :name", "params": {"name": hostile}}, ctx)
    assert result == {"rows": [{**row, "big": str(2**60)}], "truncated": False}
    computed = it.call("query", {"sql": "SELECT x'00ff' AS raw, :deep AS deep", "params": {"deep": {"a": [1]}}}, ctx)
    assert computed["rows"] == [{"raw": "AP8=", "deep": '{"a":[1]}'}]


def test_rows_are_added_changed_and_deleted(it: Connector, ctx: Context, root: Path) -> None:
    rows = [{"id": 3, "name": "Cy"}, {"id": 4, "name": "Dan"}]
    for _ in range(2):
        assert it.call("upsert", {"table": "gos_sample", "key": ["id"], "rows": rows}, ctx) == {"affected": 2}
    assert it.call("update", {"table": "gos_sample", "where": {"id": 1}, "values": {"name": "Anna"}}, ctx) == {"affected": 1}
    assert it.call("delete", {"table": "gos_sample", "where": {"id": 2}}, ctx) == {"affected": 1}
    assert names(root) == ["Anna", "Cy", "Dan"]
    result = it.call("execute", {"sql": "UPDATE gos_sample SET big = id RETURNING id"}, ctx)
    assert (result["affected"], len(result["rows"])) == (3, 3)
    assert it.call("execute", {"sql": "CREATE INDEX by_name ON gos_sample (name)"}, ctx) == {"affected": 0}


def test_insert_adds_all_rows_or_none(it: Connector, ctx: Context, root: Path) -> None:
    rows = [{"id": 8, "name": "Eve"}, {"id": 1, "name": "Twice"}]
    with pytest.raises(Rejected, match="UNIQUE"):
        it.call("insert", {"table": "gos_sample", "rows": rows}, ctx)
    assert names(root) == ["Ann", "Bob", "Cyd"]


def test_describe_returns_columns_and_keys(it: Connector, ctx: Context) -> None:
    [table] = it.call("describe", {}, ctx)["tables"]
    assert (table["name"], table["kind"], table["key"]) == ("gos_sample", "table", ["id"])
    assert table["columns"][1] == {"name": "name", "type": "TEXT", "nullable": False}


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM gos_sample", "INSERT INTO gos_sample (id, name) VALUES (9, 'x')", "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "WITH x AS (SELECT 1) DELETE FROM gos_sample", "PRAGMA query_only = OFF", "PRAGMA user_version = 7",
        "DROP TABLE gos_sample",
    ],
)  # fmt: skip
def test_a_query_cannot_write(it: Connector, ctx: Context, root: Path, sql: str) -> None:
    before = (root / "shop.db").read_bytes()
    with pytest.raises(Rejected):
        it.call("query", {"sql": sql}, ctx)
    assert (root / "shop.db").read_bytes() == before


@pytest.mark.parametrize("action", ["query", "execute"])
@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '{outside}' AS o", "ATTACH 'file:{outside}?mode=rwc' AS o", "VACUUM INTO '{outside}'", "VACUUM", "DETACH main",
        "SELECT load_extension('{outside}')", "SELECT fts3_tokenizer('simple')", "PRAGMA journal_mode = OFF",
        "PRAGMA writable_schema = ON", "PRAGMA temp_store_directory = '.'",
        "PRAGMA trusted_schema = ON", "COMMIT", "ROLLBACK", "SAVEPOINT a",
        "BEGIN", "SELECT 1; DELETE FROM gos_sample", "CREATE VIRTUAL TABLE v USING dbstat", "SELECT zeroblob(1000000000)",
        "SELECT readfile('{outside}')", "SELECT writefile('{outside}', 'x')",
    ],
)  # fmt: skip
def test_statements_cannot_leave_the_file_or_the_transaction(
    it: Connector, ctx: Context, root: Path, tmp_path: Path, action: str, sql: str
) -> None:
    outside = tmp_path / "outside.db"
    with pytest.raises(Rejected):
        it.call(action, {"sql": sql.replace("{outside}", str(outside))}, ctx)
    assert not outside.exists()
    assert [path.name for path in root.iterdir()] == ["shop.db"]
    assert names(root) == ["Ann", "Bob", "Cyd"]


def test_an_endless_statement_ends_at_the_deadline(it: Connector, root: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    for action in ("query", "execute"):
        with (
            open_context(folders=[str(root)], seconds=0.3) as ctx,
            pytest.raises(TransientError, match="did not end in time") as caught,
        ):
            it.call(action, {"sql": endless}, ctx)
        assert caught.value.outcome == "not_done"
        assert time.monotonic() < ctx.deadline + 20


def test_a_locked_file_is_waited_for_until_the_deadline(it: Connector, root: Path) -> None:
    other = sqlite3.connect(root / "shop.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with (
            open_context(folders=[str(root)], seconds=0.3) as ctx,
            pytest.raises(TransientError, match="Another program has locked") as caught,
        ):
            it.call("update", {"table": "gos_sample", "where": {"id": 1}, "values": {"name": "X"}}, ctx)
        assert caught.value.outcome == "not_done"
    finally:
        other.close()


def test_a_file_in_wal_mode_is_read_and_written(it: Connector, ctx: Context, root: Path) -> None:
    other = sqlite3.connect(root / "shop.db", isolation_level=None)
    try:
        other.execute("PRAGMA journal_mode = WAL")
        assert it.call("update", {"table": "gos_sample", "where": {"id": 1}, "values": {"name": "Wally"}}, ctx) == {"affected": 1}
        assert it.call("query", {"sql": "SELECT name FROM gos_sample WHERE id = 1"}, ctx)["rows"] == [{"name": "Wally"}]
    finally:
        other.close()


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"file": "nothing.db"}, ConnectorError),
        ({"file": "../outside.db"}, ConfigError),
        ({"file": "link.db"}, Rejected),
        ({"file": "text.db"}, ConfigError),
        ({"folder": "/etc"}, AddressNotAllowed),
        ({"folder": "/"}, ConfigError),
    ],
)
def test_only_databases_in_the_operators_folder_are_opened(
    root: Path, tmp_path: Path, ctx: Context, changed: dict[str, str], error: type[Exception]
) -> None:
    create_database(tmp_path / "outside.db")
    (root / "link.db").symlink_to(tmp_path / "outside.db")
    (root / "text.db").write_text("this is no database, but a text that is long enough to be taken for a header" * 20)
    it = SqliteConnector(settings_for(root, **changed))
    with pytest.raises(error):
        it.check(ctx)
    assert not (root / "nothing.db").exists()


def test_a_read_only_folder_is_not_written(root: Path) -> None:
    it = SqliteConnector(settings_for(root))
    with open_context(folders=[f"{root}:ro"]) as ctx:
        assert len(it.call("query", {"sql": "SELECT * FROM gos_sample"}, ctx)["rows"]) == 3
        with pytest.raises(Rejected, match="is read-only"):
            it.call("delete", {"table": "gos_sample", "where": {"id": 1}}, ctx)


def test_many_threads_at_once_leave_no_file_open(it: Connector, ctx: Context, root: Path) -> None:
    def work(number: int) -> int:
        it.call("insert", {"table": "gos_sample", "rows": [{"id": 100 + number, "name": str(number)}]}, ctx)
        return len(it.call("query", {"sql": "SELECT id FROM gos_sample"}, ctx)["rows"])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(24)))
    assert len(names(root)) == 27
    open_files = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not any(str(root) in path for path in open_files)
