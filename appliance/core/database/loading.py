"""Bulk inserts on SQLite and PostgreSQL."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from . import db

MAX_PARAMETERS = 8_000  # Maximum number of parameters per statement.


def insert_rows(table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> int:
    """Inside a write: insert rows into a table; returns their number."""
    row_sql = f"({', '.join(placeholders(table, columns))})"
    column_list, batch_size = ", ".join(f'"{column}"' for column in columns), max(1, MAX_PARAMETERS // len(columns))
    remaining, count = iter(rows), 0
    while batch := list(islice(remaining, batch_size)):
        sql = f'INSERT INTO "{table}" ({column_list}) VALUES {", ".join([row_sql] * len(batch))}'  # noqa: S608  # names of our own
        db.execute(sql, tuple(value for row in batch for value in row))
        count += len(batch)
    return count


def placeholders(table: str, columns: Sequence[str]) -> list[str]:
    """The parameters for values of these columns from an SQLite file, in which a boolean is a number."""
    booleans = set() if db.is_sqlite() else _boolean_columns(table)
    return ["CAST(CAST(? AS INTEGER) AS BOOLEAN)" if column in booleans else "?" for column in columns]


def _boolean_columns(table: str) -> set[str]:
    """The boolean columns of a PostgreSQL table, which do not accept numbers."""
    sql = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ? "
        "AND data_type = 'boolean'"
    )
    return {str(row[0]) for row in db.rows(sql, (table,))}


@contextmanager
def defer_foreign_keys(tables: Iterable[str]) -> Iterator[None]:
    """Inside a write: allow foreign keys of these tables to refer to rows that are inserted later in the block.

    SQLite checks them at the commit, PostgreSQL at the end of the block.
    """
    if db.is_sqlite():
        db.execute("PRAGMA defer_foreign_keys = 1")
        yield
        return
    constraints = _foreign_keys(set(tables))
    for table, name in constraints:
        db.execute(f'ALTER TABLE "{table}" ALTER CONSTRAINT "{name}" DEFERRABLE INITIALLY DEFERRED')
    yield
    db.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for table, name in constraints:
        db.execute(f'ALTER TABLE "{table}" ALTER CONSTRAINT "{name}" NOT DEFERRABLE')


def drop_foreign_keys() -> list[str]:
    """Inside a write on PostgreSQL: drop all foreign keys; returns the statements that restore them, and then check every row."""
    sql = (
        "SELECT t.relname, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid "
        "JOIN pg_namespace n ON n.oid = t.relnamespace WHERE c.contype = 'f' AND n.nspname = current_schema() ORDER BY 1, 2"
    )
    constraints = db.rows(sql)
    for table, name, _ in constraints:
        db.execute(f'ALTER TABLE "{table}" DROP CONSTRAINT "{name}"')
    return [f'ALTER TABLE "{table}" ADD CONSTRAINT "{name}" {definition}' for table, name, definition in constraints]


def _foreign_keys(tables: set[str]) -> list[tuple[str, str]]:
    sql = (
        "SELECT t.relname, c.conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid "
        "JOIN pg_namespace n ON n.oid = t.relnamespace WHERE c.contype = 'f' AND n.nspname = current_schema()"
    )
    return [(str(table), str(name)) for table, name in db.rows(sql) if table in tables]


def advance_sequences(used: Mapping[str, int] | None = None) -> None:
    """Inside a write: move all sequences behind the largest ids in their tables, and behind the last `used` number of a table;
    SQLite does the former automatically."""
    if db.is_sqlite():
        return
    sql = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() "
        "AND column_default LIKE 'nextval(%'"
    )
    for table, column in db.rows(sql):
        last = f'greatest((SELECT max("{column}") FROM "{table}"), {int((used or {}).get(table, 0))})'  # noqa: S608  # names of our own
        db.execute(f"SELECT setval(pg_get_serial_sequence('\"{table}\"', '{column}'), greatest({last}, 1), {last} > 0)")
