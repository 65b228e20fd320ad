"""The SQLite database: connections are read-only, except on the writer's thread."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.errors import TimedOut

BUSY_SECONDS = 20
TIMEOUT_MESSAGE = "the query took longer than {seconds:g} s and was stopped; filter by an indexed field, or request fewer rows"
_CHECK_INTERVAL = 50_000  # Instructions of SQLite's virtual machine, about a millisecond.

# Each of some forty threads has a connection, and its pages are dropped whenever another one commits: 2 MB were no faster, and took
# hours to fill.
_READER_PRAGMAS = ("PRAGMA query_only=1", "PRAGMA cache_size=-500")
_WRITER_PRAGMAS = ("PRAGMA cache_size=-8000",)
_PRAGMAS = (
    f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=1",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA trusted_schema=0",
)
_SAVEPOINT = "inner_part"  # With nested savepoints of one name, SQLite uses the innermost.
_pause = threading.Event()


class _OpenConnection:
    """Closes a connection together with its thread.  By itself it would stay open until the next collection of all garbage, because
    it and its cache of statements refer to each other."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __del__(self) -> None:
        self._connection.close()


class Sqlite(peewee.SqliteDatabase):  # type: ignore[misc]  # peewee carries no types
    """A connection per thread; `is_writing` says whether the current thread is the writer."""

    writers = 1
    shares_writes = False
    row_lock = ""
    size_sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"

    def __init__(self, path: str, is_writing: Callable[[], bool]) -> None:
        self._is_writing = is_writing
        # Without its check of the thread, because what a thread has left may be removed by another one.
        super().__init__(path, timeout=BUSY_SECONDS, check_same_thread=False)

    def _add_conn_hooks(self, conn: sqlite3.Connection) -> None:
        self._state.open_connection = _OpenConnection(conn)
        super()._add_conn_hooks(conn)
        _use_wal(conn)
        for pragma in _PRAGMAS + (_WRITER_PRAGMAS if self._is_writing() else _READER_PRAGMAS):
            conn.execute(pragma)

    def statement(self, sql: str) -> str:
        """Convert an SQL statement for the driver."""
        return sql

    def read_state(self) -> object:
        """See `changes.read_state`: the number changes when another connection has committed, and this thread's never does."""
        return self.execute_sql("PRAGMA data_version").fetchone()[0]

    def _execute_cursor(self, sql: str, params: Any, **options: Any) -> Any:
        """Run a statement; without hooks also without peewee's log and cursor, which take as long as finding a row."""
        if self.query_hooks:
            return super()._execute_cursor(sql, params, **options)
        with peewee.__exception_wrapper__:
            return self.connection().execute(sql, params or ())

    def fetch_rows(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; TimedOut, as in `deadline`, also while they are fetched."""
        with peewee.__exception_wrapper__:
            rows: list[tuple[Any, ...]] = self.execute_sql(sql, params).fetchall()
        return rows

    def try_statement(self, sql: str, params: Sequence[Any]) -> int:
        """Run a statement inside a write, and return the number of changed rows; SQLite undoes one that fails by itself."""
        return int(self.execute_sql(sql, params).rowcount)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside the block, this thread reads one state of the database; nested blocks read that of the outermost one."""
        connection = self.connection()
        if connection.in_transaction:
            yield
            return
        connection.execute("BEGIN")
        try:
            yield
        finally:
            connection.execute("COMMIT")  # nothing was written

    def in_transaction(self) -> bool:
        """Whether this thread is in a snapshot or a write, which peewee does not know of."""
        return not self.is_closed() and bool(self.connection().in_transaction)

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Interrupt the statements of this thread in the block once so many seconds have passed; TimedOut."""
        connection, ends_at = self.connection(), clock.monotonic() + seconds
        connection.set_progress_handler(lambda: int(clock.monotonic() > ends_at), _CHECK_INTERVAL)
        try:
            yield
        except peewee.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise TimedOut(TIMEOUT_MESSAGE.format(seconds=seconds)) from error
        finally:
            connection.set_progress_handler(None, 0)

    def begin_write(self, *, is_shared: bool) -> None:
        """Begin a write transaction; there is at most one across all processes."""
        if not self.is_connection_usable():
            self.connect(reuse_if_open=True)
        self.execute_sql("BEGIN IMMEDIATE")

    def can_repeat(self) -> bool:
        """Whether this thread's transaction failed because of a concurrent one; here, writes wait for each other instead."""
        return False

    def commit_write(self, followed: Sequence[Any]) -> None:
        """Commit; returns when the changes are on disk.  Nothing is `followed`, as only shared writes defer these inserts."""
        self.execute_sql("COMMIT")

    def look_ahead(self, sql: str, params: tuple[Any, ...]) -> None:
        """Nothing: a query costs no round trip here."""

    def send(self, sql: str, params: tuple[Any, ...]) -> None:
        """Change rows at once: there are no round trips to save."""
        self.execute_sql(sql, params)

    def flush(self) -> None:
        """Nothing waits to be sent."""

    def set_savepoint(self) -> str:
        """Set a savepoint in the writer's transaction, and return its name."""
        self.execute_sql(f"SAVEPOINT {_SAVEPOINT}")
        return _SAVEPOINT

    def release_savepoint(self, name: str) -> None:
        """Release the savepoint and keep the changes since."""
        self.execute_sql(f"RELEASE SAVEPOINT {name}")

    def undo_savepoint(self, name: str) -> None:
        """Roll back the changes since the savepoint."""
        self.execute_sql(f"ROLLBACK TO SAVEPOINT {name}")
        self.execute_sql(f"RELEASE SAVEPOINT {name}")

    def roll_back(self) -> None:
        """Roll back the writer's transaction, unless SQLite has already done so."""
        if self.connection().in_transaction:
            self.execute_sql("ROLLBACK")


def _use_wal(conn: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; waits for another process that does so at the same time, because SQLite does not."""
    deadline = clock.monotonic() + BUSY_SECONDS
    while conn.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            conn.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if clock.monotonic() > deadline:
                raise
            _pause.wait(0.01)
