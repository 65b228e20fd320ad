"""The database as an SQLite file: connections that can only read, except on the writer's thread."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import peewee

from . import clock

BUSY_SECONDS = 20

_READER_PRAGMAS = ("PRAGMA query_only=1",)
_PRAGMAS = (
    f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=1",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-8000",
    "PRAGMA trusted_schema=0",
)
_pause = threading.Event()


class Sqlite(peewee.SqliteDatabase):  # type: ignore[misc]  # peewee carries no types
    """A connection per thread; `is_writing` says whether the one that asks is the writer."""

    snapshot_begin = ()
    size_sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"

    def __init__(self, path: str, is_writing: Callable[[], bool]) -> None:
        self._is_writing = is_writing
        super().__init__(path, timeout=BUSY_SECONDS)

    def _add_conn_hooks(self, conn: sqlite3.Connection) -> None:
        super()._add_conn_hooks(conn)
        _use_wal(conn)
        for pragma in _PRAGMAS + (() if self._is_writing() else _READER_PRAGMAS):
            conn.execute(pragma)

    def statement(self, sql: str) -> str:
        """A statement of ours as the driver wants it."""
        return sql

    def held(self) -> Any:
        """Inside the block this thread keeps one connection."""
        return self.connection_context() if self.is_closed() else nullcontext()

    def begin_write(self) -> None:
        """Begin the only writing transaction there is now, over all processes."""
        if not self.is_connection_usable():
            self.connect(reuse_if_open=True)
        self.execute_sql("BEGIN IMMEDIATE")

    def roll_back(self) -> None:
        """End the writer's transaction, unless SQLite has done it."""
        if self.connection().in_transaction:
            self.execute_sql("ROLLBACK")


def _use_wal(conn: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait for another process that does so at the same moment, so we do."""
    ends = clock.monotonic() + BUSY_SECONDS
    while conn.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            conn.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if clock.monotonic() > ends:
                raise
            _pause.wait(0.01)
