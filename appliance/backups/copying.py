"""Copies schema and rows from one database, SQLite or PostgreSQL, to another, table by table."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Protocol

from appliance import migrations
from appliance.core.database import db
from appliance.core.database.loading import advance_sequences, defer_foreign_keys, insert_rows
from appliance.core.sentences import Sentence
from appliance.datapool import from_stored
from appliance.datapool import tables as entity_tables

from .problems import BackupInvalid

BATCH = 500
_FETCHED = 2_000  # rows at a time from a server
SEARCHED = ("document_text", "log_line")
ENTITIES = re.compile(r"dp_[0-9a-f]{16}")
# The suffixes of the tables behind an SQLite full-text index.
_SHADOWS = ("_config", "_content", "_data", "_docsize", "_idx")
_cursors = count()
Row = tuple[Any, ...]
Leads = Mapping[str, set[str]]


class Source(Protocol):
    """A database from which rows are read in one transaction."""

    def tables(self) -> list[str]: ...
    def columns(self, table: str) -> list[str]: ...
    def primary_key(self, table: str) -> list[str]: ...
    def sequences(self) -> dict[str, int]: ...
    def rows(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]: ...


class FileSource:
    """An SQLite database, given a function that executes statements."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute

    def tables(self) -> list[str]:
        """Every regular table; referenced tables come first."""
        rows = self.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        sql_by_table = {str(name): str(sql) for name, sql in rows}
        virtual = {name for name, sql in sql_by_table.items() if sql.startswith("CREATE VIRTUAL")}
        names = sql_by_table.keys() - virtual - {name + end for name in virtual for end in _SHADOWS}
        return sort_tables({name: {row[2] for row in self.rows(f'PRAGMA foreign_key_list("{name}")')} for name in names})

    def columns(self, table: str) -> list[str]:
        """The columns of a table."""
        return [row[1] for row in self.rows(f'PRAGMA table_info("{table}")')]

    def primary_key(self, table: str) -> list[str]:
        """The columns of a table's primary key, in its order; empty without one."""
        keys = sorted((row[5], row[1]) for row in self.rows(f'PRAGMA table_info("{table}")') if row[5])
        return [str(name) for _, name in keys]

    def sequences(self) -> dict[str, int]:
        """The last number that each table with a serial has given out, also to rows that were deleted since."""
        if not list(self.rows("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")):
            return {}
        return {str(table): int(last) for table, last in self.rows("SELECT name, seq FROM sqlite_sequence")}

    def rows(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        """The rows of a statement, read one at a time."""
        rows: Iterator[Row] = iter(self._execute(sql, tuple(params)))
        return rows


class ServerSource:
    """A database on a PostgreSQL server, inside a snapshot of it."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def tables(self) -> list[str]:
        """As `FileSource.tables`."""
        names = [str(row[0]) for row in self._fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
        rows = self._fetch(
            "SELECT of.relname, towards.relname FROM pg_constraint c JOIN pg_class of ON of.oid = c.conrelid "
            "JOIN pg_class towards ON towards.oid = c.confrelid JOIN pg_namespace n ON n.oid = of.relnamespace "
            "WHERE c.contype = 'f' AND n.nspname = current_schema()"
        )
        return sort_tables({name: {str(to) for of, to in rows if of == name} for name in names})

    def columns(self, table: str) -> list[str]:
        """As `FileSource.columns`."""
        sql = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ? "
            "ORDER BY ordinal_position"
        )
        return [str(row[0]) for row in self._fetch(sql, table)]

    def primary_key(self, table: str) -> list[str]:
        """As `FileSource.primary_key`."""
        sql = (
            "SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indisprimary AND n.nspname = current_schema() AND c.relname = ? "
            "ORDER BY array_position(i.indkey::int2[], a.attnum)"
        )
        return [str(row[0]) for row in self._fetch(sql, table)]

    def sequences(self) -> dict[str, int]:
        """As `FileSource.sequences`."""
        sql = (
            "SELECT c.table_name, "
            "pg_sequence_last_value(pg_get_serial_sequence(quote_ident(c.table_name), c.column_name)::regclass) "
            "FROM information_schema.columns c WHERE c.table_schema = current_schema() AND c.column_default LIKE 'nextval(%'"
        )
        return {str(table): int(last) for table, last in self._fetch(sql) if last is not None}

    def _fetch(self, sql: str, *params: str) -> list[Row]:
        rows: list[Row] = self._database.fetch_rows(sql, params)
        return rows

    def rows(self, sql: str, params: Sequence[Any] = ()) -> Iterator[Row]:
        """As `FileSource.rows`, with a server-side cursor, because the driver's own would load a whole table into memory."""
        name = f"gos_{next(_cursors)}"
        self._database.execute_sql(f"DECLARE {name} NO SCROLL CURSOR FOR {self._database.statement(sql)}", tuple(params))
        while rows := self._database.execute_sql(f"FETCH {_FETCHED} FROM {name}").fetchall():
            yield from rows
        self._database.execute_sql(f"CLOSE {name}")


def open_source() -> Source:
    """The open database as a source; call inside `db.snapshot`."""
    return FileSource(db.database.execute_sql) if db.is_sqlite() else ServerSource(db.database.obj)


def sort_tables(references: Leads) -> list[str]:
    """The tables sorted so that each comes after those it references; tables in cycles come last."""
    remaining, ordered = {name: set(to) - {name} for name, to in sorted(references.items())}, []
    while ready := [name for name, to in remaining.items() if not to & remaining.keys()]:
        ordered += ready
        remaining = {name: to for name, to in remaining.items() if name not in ready}
    return ordered + list(remaining)


def create_schema(file: sqlite3.Connection, source: Source, tenant_id: str | None = None) -> None:
    """Creates the schema of the source in an empty file: its migrations and the tables of all collections, or of a tenant's."""
    ((number,),) = source.rows("SELECT max(number) FROM migration")
    for statement in migrations.statements_of_file(supported_number(number)):
        file.execute(statement)
    for statement in entity_statements(source, sqlite=True, tenant_id=tenant_id):
        file.execute(statement)
    for table in FileSource(file.execute).tables():  # the baseline inserts rows
        file.execute(f'DELETE FROM "{table}"')  # noqa: S608  # names of our own


def supported_number(number: int) -> int:
    """The migration with the schema of a database whose last migration is this; BackupInvalid if this release has none."""
    equivalent = migrations.equivalent_number(number)
    if equivalent is None:
        raise BackupInvalid(Sentence(
            "the data is of a development version before 0.1.0 whose schema this release cannot upgrade; start %(version)s on that "
            "data once, then back it up again", version=migrations.DEVELOPMENT_VERSION,
        ))
    return equivalent


def entity_statements(source: Source, *, sqlite: bool, tenant_id: str | None = None) -> Iterator[str]:
    """The statements that create the source's entity tables, or those of one tenant, in another database."""
    if "collection" not in source.tables():
        return
    collections = list(source.rows("SELECT tenant_id, name, definition, table_name FROM collection ORDER BY tenant_id, name"))
    names = {(tenant, name): table for tenant, name, _, table in collections}
    later: list[str] = []
    for tenant, _, stored, table in collections:
        if tenant_id is not None and tenant != tenant_id:
            continue
        targets = {name: other for (of, name), other in names.items() if of == tenant}
        definition = from_stored(json.loads(stored))
        yield from entity_tables.build_table_statements(definition, table, targets if sqlite else None, sqlite=sqlite)
        # A server needs the referenced table to exist, and tables may reference each other.
        later += [] if sqlite else entity_tables.build_foreign_keys(definition, table, targets)
    yield from later


@dataclass(frozen=True)
class RowFilter:
    """Selects the rows whose `column` has this value; `instead` replaces column values."""

    column: str
    value: str
    instead: Mapping[str, Any] = field(default_factory=dict)


def copy_rows(source: Source, file: sqlite3.Connection, table: str, of: RowFilter | None = None) -> None:
    """Copies rows of a table into a file that already has the table."""
    columns = source.columns(table)
    listed = ", ".join(f'"{column}"' for column in columns)
    where, params = (f' WHERE "{of.column}" = ?', (of.value,)) if of else ("", ())
    instead = {columns.index(name): value for name, value in of.instead.items()} if of else {}
    sql = f'INSERT INTO "{table}" ({listed}) VALUES ({", ".join("?" * len(columns))})'  # noqa: S608  # names of our own
    rows = source.rows(f'SELECT {listed} FROM "{table}"{where}', params)  # noqa: S608
    while batch := list(islice(rows, BATCH)):
        file.executemany(sql, [[instead.get(i, value) for i, value in enumerate(row)] for row in batch] if instead else batch)


def load_rows(source: Source) -> None:
    """Inside a write on a server that has the migrations of the source: create its entity tables, and replace all rows by its."""
    for statement in entity_statements(source, sqlite=False):
        db.execute(statement)
    tables = source.tables()
    with defer_foreign_keys(tables):
        for table in reversed(tables):
            db.execute(f'DELETE FROM "{table}"')  # noqa: S608  # rows inserted by the baseline
        for table in tables:
            columns = source.columns(table)
            listed = ", ".join(f'"{column}"' for column in columns)
            insert_rows(table, columns, source.rows(f'SELECT {listed} FROM "{table}"'))  # noqa: S608
    advance_sequences(source.sequences())


def build_text_indexes(file: sqlite3.Connection) -> None:
    """Builds the full-text indexes of a file after its rows were copied."""
    for table in SEARCHED:
        if file.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{table}_index",)).fetchone():
            words = f"SELECT id, words FROM {table} WHERE words IS NOT NULL"  # noqa: S608
            file.execute(f"INSERT INTO {table}_index (rowid, words) {words}")
    if file.execute("SELECT 1 FROM sqlite_master WHERE name = 'document_name_index'").fetchone():
        file.execute("INSERT INTO document_name_index (rowid, name) SELECT number, name FROM document")
