"""The PostgreSQL database: exclusive and shared writes, a pool of read connections."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import peewee
import psycopg
from psycopg import adapt
from psycopg.pq import TransactionStatus
from psycopg.types.json import Json, Jsonb

from appliance.core.errors import ConfigInvalid, Conflict, Overloaded, TimedOut
from appliance.core.sentences import Sentence

from .advisory_locks import WRITER_LOCK, lock_in, lock_statement, signed, space_of
from .losses import RETRY_SECONDS, ConnectionLost
from .read_pool import ReadPool
from .sqlite import TIMEOUT_MESSAGE
from .unsent import MOST_CHANGES, Unsent

# Keepalives end the sessions, and thereby the locks, of a machine that has disappeared.
_SESSION_SETTINGS = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
_WRITER_SETTINGS = "SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = '60s'; SET synchronous_commit = on"
_READER_SETTINGS = "SET default_transaction_read_only = on"

_CONFLICTS = psycopg.errors.DeadlockDetected

_QUOTED_OR_PLACEHOLDER = re.compile(r"""'[^']*'|"[^"]*"|\?|%""")


@lru_cache(maxsize=2048)
def convert_placeholders(sql: str) -> str:
    """Convert `?` to the driver's `%s`, except in quotes, and escape `%`."""
    return _QUOTED_OR_PLACEHOLDER.sub(lambda match: "%s" if match[0] == "?" else match[0].replace("%", "%%"), sql)


class _Write(threading.local):
    """What is known of this thread's write transaction."""

    can_repeat = False


class _BooleanDumper(adapt.Dumper):
    """Writes a boolean as 0 or 1, as our columns store it on both databases."""

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _Driver(peewee.Psycopg3Adapter):  # type: ignore[misc]  # peewee carries no types
    """peewee's use of psycopg, which peewee was imported without (`appliance/core/database/__init__.py`)."""

    txn_idle, txn_inerror, txn_unknown = TransactionStatus.IDLE, TransactionStatus.INERROR, TransactionStatus.UNKNOWN

    def __init__(self) -> None:
        super().__init__()
        self.json_type, self.jsonb_type = Json, Jsonb

    def check_driver(self) -> None:
        """psycopg is there, as this module imports it."""

    def get_binary_type(self) -> Any:
        return psycopg.Binary

    def connect(self, database: Any, **options: Any) -> Any:
        return psycopg.connect(database.database, **options)


class Postgresql(peewee.PostgresqlDatabase):  # type: ignore[misc]  # peewee carries no types
    """Each writer's thread has its own connection; all other threads borrow one from the pool."""

    psycopg2_adapter = psycopg3_adapter = _Driver  # peewee takes the first if it was imported without psycopg, else the second

    shares_writes = True
    row_lock = " FOR NO KEY UPDATE"
    size_sql = "SELECT pg_database_size(current_database())"

    def __init__(self, url: str, writers: int = 1) -> None:
        # A client-side cursor inserts parameters as literals, so that their types follow from the statement, as on SQLite.
        options = {"cursor_factory": psycopg.ClientCursor, "client_encoding": "utf8", "connect_timeout": 10}
        super().__init__(url, prefer_psycopg3=True, **options)
        self._readers = ReadPool(lambda: self._open(_READER_SETTINGS))
        self._unsent = Unsent()
        self._write = _Write()
        self.writers = writers
        self.space = ""  # see `space_of`
        self._writer_lock = WRITER_LOCK
        self._watching: Any = None

    def check(self) -> None:
        """Raise ConfigInvalid unless the server can be reached, and its encoding and collation are supported."""
        try:
            encoding = self.execute_sql("SHOW server_encoding").fetchone()[0]
            bytewise, schema = self.execute_sql("SELECT 'a' > 'B' AND 'a-b' < 'aa', current_schema()").fetchone()
        except Overloaded as error:
            reason = " ".join(str(error.__cause__).split())
            raise ConfigInvalid(Sentence("storage.database: cannot connect to the server: %(reason)s", reason=reason)) from error
        finally:
            self.close_readers()
        if encoding != "UTF8" or not bytewise:
            raise ConfigInvalid(
                "storage.database: the database must have encoding UTF8 and sort by code point; create it with "
                "createdb --template=template0 --encoding=UTF8 --locale=C NAME"
            )
        self.space = space_of(schema or "")
        self._writer_lock = signed(lock_in(self.space, WRITER_LOCK))

    def lock_out_writers(self) -> None:
        """Keep every write out while this thread keeps its connection; Conflict if a process uses the database."""
        others = (
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        if self.fetch_rows(others, ()) or self.fetch_rows("SELECT pg_try_advisory_lock(?)", (self._writer_lock,)) != [(True,)]:
            raise Conflict("a process of the appliance uses the database, perhaps on another machine; stop all of them first")

    def statement(self, sql: str) -> str:
        """Convert an SQL statement for the driver."""
        return convert_placeholders(sql)

    def _open(self, settings: str) -> Any:
        try:
            connection = super()._connect()
            connection.adapters.register_dumper(bool, _BooleanDumper)
            connection.execute(_SESSION_SETTINGS + settings)
        except psycopg.OperationalError as error:
            message, headers = "the database server does not respond; try again in a moment", {"Retry-After": RETRY_SECONDS}
            raise Overloaded(message, headers=headers) from error
        return connection

    def _connect(self) -> Any:
        return self._open(_WRITER_SETTINGS)

    def open_connection(self) -> Any:
        """Open a connection outside the pool; the caller must close it."""
        return self._open(_READER_SETTINGS)

    def read_state(self) -> object:
        """See `changes.read_state`: equal snapshots see the same rows. Never waits for the pool, as its connection is its own."""
        try:
            if self._watching is None:
                self._watching = self.open_connection()
            return self._watching.execute("SELECT pg_current_snapshot()::text").fetchone()[0]
        except psycopg.Error:
            self._stop_watching()
            raise

    def _stop_watching(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.close()

    @contextmanager
    def keep_connection(self) -> Iterator[None]:
        """Inside the block, this thread keeps its connection."""
        if not self._state.closed:
            yield
            return
        connection = self._readers.acquire()
        self._state.set_connection(connection)
        try:
            yield
        finally:
            self._state.reset()
            self._readers.release(connection)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside the block, this thread reads one state of the database; nested blocks read that of the outermost one."""
        with self.keep_connection():
            try:
                with self.atomic("REPEATABLE READ"):
                    yield
            except peewee.OperationalError as error:
                if self._state.conn.closed:  # The rollback failed, too.
                    raise ConnectionLost(error) from error
                raise

    def fetch_rows(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a query, whose parameters are `?`, and return its rows."""
        statement = convert_placeholders(sql)
        rows = self._unsent.use_rows((statement, tuple(params)))
        return list(self.execute_sql(statement, params).fetchall()) if rows is None else rows

    def try_statement(self, sql: str, params: Sequence[Any]) -> int:
        """Run a statement inside a write in its own savepoint, and return the number of changed rows."""
        point = self.set_savepoint()
        try:
            changed = int(self.execute_sql(convert_placeholders(sql), params).rowcount)
        except BaseException:
            self.undo_savepoint(point)
            raise
        self.release_savepoint(point)
        return changed

    def _execute_cursor(self, sql: str, params: Any, **options: Any) -> Any:
        if not self._state.closed:
            return self._execute_on_own(sql, params, **options)
        with suppress(ConnectionLost), self.keep_connection():
            return self._execute_on_own(sql, params, **options)
        with self.keep_connection():  # A read statement can be repeated.
            return self._execute_on_own(sql, params, **options)

    def _execute_on_own(self, sql: str, params: Any, **options: Any) -> Any:
        """Run a statement on this thread's connection, after the unsent ones; returns its cursor."""
        unsent = self._unsent.text()
        try:
            cursor = super()._execute_cursor(unsent + sql, (*self._unsent.params(), *(params or ())), **options)
        except BaseException as error:
            if self._state.conn.info.transaction_status != TransactionStatus.INTRANS:  # Otherwise, nothing was sent.
                self._unsent.forget()
            if isinstance(error, peewee.OperationalError):
                self._write.can_repeat = isinstance(error.orig, _CONFLICTS) or self._state.conn.closed
                if self._state.conn.closed:
                    raise ConnectionLost(error) from error
            raise
        if unsent:
            self._unsent.read_results(cursor)
            while cursor.nextset():
                pass
        return cursor

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Let the server cancel each statement of this thread in the block after so many seconds; TimedOut."""
        with self.keep_connection():
            connection = self.connection()
            self.execute_sql(f"SET statement_timeout = {int(seconds * 1000)}")
            try:
                yield
            except peewee.OperationalError as error:
                if not isinstance(error.orig, psycopg.errors.QueryCanceled):
                    raise
                raise TimedOut(TIMEOUT_MESSAGE.format(seconds=seconds)) from error
            finally:
                if not connection.closed and connection.info.transaction_status != TransactionStatus.INERROR:
                    self.execute_sql("RESET statement_timeout")  # Back to the default of the server, role or database.

    def begin_write(self, *, is_shared: bool) -> None:
        """Begin a write transaction, beside other shared ones or alone across all processes; its first statement does so.

        Code inside an exclusive `db.write` relies on this: rows that it has read do not change before it writes.
        """
        self._unsent.forget()
        self._write.can_repeat = False
        if self._state.closed or self._state.conn.closed:
            self.close()
            self.connect()
        self._unsent.begin("BEGIN", f"SELECT pg_advisory_xact_lock{'_shared' if is_shared else ''}({self._writer_lock})")

    def can_repeat(self) -> bool:
        """Whether this thread's transaction failed, and was rolled back, because of a concurrent one or a lost connection."""
        return self._write.can_repeat

    def commit_write(self, followed: Sequence[tuple[str, str, tuple[Any, ...]]]) -> None:
        """Commit; returns when the changes are on disk.

        In the same round trip it takes the advisory locks of the `followed` tables, and inserts their rows, so that their
        numbers become visible in the order of the locks.
        """
        self._unsent.forget_queries()
        if not followed and not self._unsent.changes:
            self._unsent.forget()  # Savepoints end with the transaction.
            if self._state.conn.info.transaction_status == TransactionStatus.IDLE:
                return  # nothing was sent
        locks = [lock_statement(table, self.space) for table in sorted({each[0] for each in followed})]
        inserts = [convert_placeholders(sql) for _, sql, _ in followed]
        try:
            self.execute_sql("; ".join([*locks, *inserts, "COMMIT"]), tuple(value for *_, params in followed for value in params))
        except ConnectionLost as error:
            self._write.can_repeat = False
            raise ConnectionLost(error, is_committing=True) from error

    def send(self, sql: str, params: tuple[Any, ...]) -> None:
        """Change rows with the next statement of this write, or with its commit."""
        self._unsent.add(convert_placeholders(sql), params)
        if self._unsent.changes >= MOST_CHANGES:
            self.flush()

    def look_ahead(self, sql: str, params: tuple[Any, ...]) -> None:
        """Send a query with the next statement of this write; its rows are kept for `fetch_rows`."""
        self._unsent.look_ahead((convert_placeholders(sql), params))

    def flush(self) -> None:
        """Make the changes that have not been sent."""
        if self._unsent.changes:
            self.execute_sql("SELECT 1")

    def set_savepoint(self) -> str:
        """Set a savepoint in the writer's transaction, and return its name."""
        return self._unsent.set()

    def release_savepoint(self, name: str) -> None:
        """Release the savepoint and keep the changes since."""
        self._unsent.release(name)

    def undo_savepoint(self, name: str) -> None:
        """Roll back the changes since the savepoint."""
        if (statement := self._unsent.undo(name)) is not None:
            self.execute_sql(statement)

    def roll_back(self) -> None:
        """Roll back the writer's transaction; if the connection is lost, the server does so."""
        self._unsent.forget()
        if self._state.closed:
            return
        if self._state.conn.closed:
            self.close()
        elif self._state.conn.info.transaction_status != TransactionStatus.IDLE:
            self.execute_sql("ROLLBACK")

    def close_readers(self) -> None:
        """Close the idle connections."""
        self._readers.close_idle()

    def shut_readers(self) -> None:
        """Close the pool permanently; connections in use are closed when they are returned."""
        self._readers.shut()
        self._stop_watching()
