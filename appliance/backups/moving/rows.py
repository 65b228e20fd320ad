"""Copies the tables of a database to a target in chunks, each one transaction, and goes on after the last one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol

from appliance.backups.copying import BATCH, Row, Source
from appliance.core.sentences import Sentence

from . import progress
from .checksums import compare_table
from .problems import MoveFailed, Report, database_errors


class Target(Protocol):
    """A database to which rows are copied; see `FileTarget` and `ServerTarget`."""

    def tables(self) -> set[str]: ...
    def progress(self) -> progress.Progress: ...
    def begin(self, source: Source, origin: str) -> None: ...
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], before: int) -> None: ...
    def complete(self, sequences: Mapping[str, int], constraints: Sequence[str]) -> None: ...
    def source(self) -> AbstractContextManager[Source]: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


def begin_or_resume(source: Source, target: Target, origin: str) -> bool:
    """Creates the schema in an empty database; whether the target has an earlier part of the same move instead.

    MoveFailed if it has anything else.
    """
    tables = target.tables()
    if progress.TABLE in tables:
        if target.progress().origin != origin:
            raise MoveFailed(
                "the target has an unfinished move from another database, or from this one before an upgrade; create a new database"
            )
        return True
    if tables:
        raise MoveFailed(
            "the database of the target is not empty; create a new one and name that in its storage.database, or "
            "move the file aside"
        )
    with database_errors("creating the schema at the target"):
        target.begin(source, origin)
    return False


def copy_tables(source: Source, target: Target, report: Report) -> None:
    """Copies all rows, referenced tables first, then restores foreign keys, indexes and serials."""
    state, tables = target.progress(), source.tables()
    if state.is_completed:
        return
    for table in tables:
        with database_errors(Sentence("copying the table %(table)s", table=table)):
            _copy_table(source, target, table, state.rows.get(table, 0), report)
    with database_errors("building the indexes and foreign keys of the target"):
        target.complete(source.sequences(), state.constraints)


def _copy_table(source: Source, target: Target, table: str, done: int, report: Report) -> None:
    columns = source.columns(table)
    ((total,),) = source.rows(f'SELECT count(*) FROM "{table}"')  # noqa: S608  # names of our own
    rows = _ordered_rows(source, table, columns, done)
    while batch := list(islice(rows, BATCH)):
        target.insert(table, columns, batch, done)
        done += len(batch)
        report(table, done, int(total))


def _ordered_rows(source: Source, table: str, columns: Sequence[str], after: int) -> Iterator[Row]:
    """The rows in the order of the primary key, without the first `after` ones; the order is the same in every run."""
    listed = ", ".join(f'"{column}"' for column in columns)
    order = ", ".join(f'"{column}"' for column in source.primary_key(table) or columns)
    # An offset must follow a limit on SQLite.
    limit = "LIMIT 9223372036854775807 OFFSET ?"
    return source.rows(f'SELECT {listed} FROM "{table}" ORDER BY {order} {limit}', (after,))  # noqa: S608


def verify_tables(source: Source, target: Target, report: Report) -> tuple[int, int]:
    """Compares every table of both databases; returns the numbers of tables and rows, MoveFailed at the first difference."""
    count, names = 0, source.tables()
    with database_errors("verifying the target"), target.source() as copy:
        if missing := set(names) - set(copy.tables()):
            raise MoveFailed(
                Sentence("the target lacks the table %(table)s; delete its database and run the command again", table=min(missing))
            )
        for number, table in enumerate(names, 1):
            count += compare_table(source, copy, table).rows
            report("verified tables", number, len(names))
    return len(names), count
