"""The database as an SQLite file: connections that can only read, except on the writer's thread."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.errors import TimedOut

BUSY_SECONDS = 20
TOO_SLOW = "the query took longer than {seconds:g} s and was ended; filter by an indexed field, compare less, or ask for fewer rows"
_STEPS_BETWEEN_LOOKS = 50_000  # of SQLite's machine: about a millisecond

_READER_PRAGMAS = ("PRAGMA query_only=1",)
_PRAGMAS = (
    f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=1",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-8000",
    "PRAGMA trusted_schema=0",
)
_SAVEPOINT = "inner_part"  # the innermost of a name is meant
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

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Inside the block a statement of this thread ends by itself once so much time has passed; TimedOut."""
        connection, ends = self.connection(), clock.monotonic() + seconds
        connection.set_progress_handler(lambda: int(clock.monotonic() > ends), _STEPS_BETWEEN_LOOKS)
        try:
            yield
        except peewee.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise TimedOut(TOO_SLOW.format(seconds=seconds)) from error
        finally:
            connection.set_progress_handler(None, 0)

    def begin_write(self) -> None:
        """Begin the only writing transaction there is now, over all processes."""
        if not self.is_connection_usable():
            self.connect(reuse_if_open=True)
        self.execute_sql("BEGIN IMMEDIATE")

    def commit_write(self) -> None:
        """Return when what was written is on disk."""
        self.execute_sql("COMMIT")

    def set_savepoint(self) -> str:
        """The name of a point of the writer's transaction that one can go back to."""
        self.execute_sql(f"SAVEPOINT {_SAVEPOINT}")
        return _SAVEPOINT

    def release_savepoint(self, name: str) -> None:
        """What was done since stays."""
        self.execute_sql(f"RELEASE SAVEPOINT {name}")

    def undo_savepoint(self, name: str) -> None:
        """What was done since is undone."""
        self.execute_sql(f"ROLLBACK TO SAVEPOINT {name}")
        self.execute_sql(f"RELEASE SAVEPOINT {name}")

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
