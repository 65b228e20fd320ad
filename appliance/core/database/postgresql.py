"""The database as a PostgreSQL server: one writer over all processes, a bounded pool of readers, presence as a lock."""

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any

import peewee
import psycopg
from psycopg import adapt
from psycopg.pq import TransactionStatus

from appliance.core import clock, ids
from appliance.core.errors import ConfigInvalid, Overloaded, TimedOut
from appliance.core.sentences import Sentence

from .presence import Presence
from .sqlite import TOO_SLOW

READERS = 16
WAIT_SECONDS = 20.0
WRITER_LOCK = int.from_bytes(b"gos:writ", "big")  # of this database; taken by every write of every process
_PRESENCE = b"gos:presence:"

# Keepalives end the session, and with it the locks, of a machine that vanished.
_EVERYWHERE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
_WRITER = "SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = '60s'; SET synchronous_commit = on"
_READER = "SET default_transaction_read_only = on"

_MARKS = re.compile(r"""'[^']*'|"[^"]*"|\?|%""")


@lru_cache(maxsize=2048)
def convert(sql: str) -> str:
    """Our `?` as the driver's `%s`; what stands in quotes is left alone, a `%` stays a `%`."""
    return _MARKS.sub(lambda found: "%s" if found[0] == "?" else found[0].replace("%", "%%"), sql)


class _FlagDumper(adapt.Dumper):
    """A truth value is 0 or 1 in our columns, on every dialect."""

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _Savepoints(threading.local):
    """Those of this thread's transaction: what is said of them travels with the next statement, so that it costs no round trip."""

    def __init__(self) -> None:
        self._names = itertools.count(1)
        self._unsent: list[str] = []

    def set(self) -> str:
        """The name of a new one."""
        name = f"sp_{next(self._names)}"
        self._unsent.append(f"SAVEPOINT {name}")
        return name

    def release(self, name: str) -> None:
        if not self._drop(name):
            self._unsent.append(f"RELEASE SAVEPOINT {name}")

    def undo(self, name: str) -> str | None:
        """The statement that undoes what was done since; None when nothing was."""
        if self._drop(name):
            return None
        self._unsent.clear()  # what came since is within it, and goes with it
        return f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}"

    def _drop(self, name: str) -> bool:
        """Whether the server has not heard of it; then it, and what is within it, is forgotten."""
        begin = f"SAVEPOINT {name}"
        if begin not in self._unsent:
            return False
        del self._unsent[self._unsent.index(begin) :]
        return True

    def unsent(self) -> str:
        """What must be sent before the next statement, each part with a semicolon."""
        return "".join(f"{each}; " for each in self._unsent)

    def forget(self) -> None:
        """It has been sent, or the transaction is over."""
        self._unsent.clear()


class _Readers:
    """At most `READERS` connections that cannot write, fewer where the server has no more, each lent for one statement or one
    snapshot."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._shut = False
        self._idle: deque[Any] = deque()
        self._lent = 0
        self._free = threading.Condition()

    def take(self) -> Any:
        """Overloaded when none comes back within `WAIT_SECONDS`, or there is none and the server gives none."""
        ends = clock.monotonic() + WAIT_SECONDS
        most = READERS
        while True:
            with self._free:
                if not self._free.wait_for(lambda: self._lent < most, max(0.0, ends - clock.monotonic())):  # noqa: B023
                    raise Overloaded("every connection to the database is in use; try again in a moment")
                self._lent += 1
                with suppress(IndexError):
                    return self._idle.pop()
            try:
                return self._connect()
            except BaseException as error:
                with self._free:
                    self._lent -= 1
                    most = self._lent
                    self._free.notify()
                if not isinstance(error, Overloaded) or most == 0:
                    raise

    def give_back(self, connection: Any) -> None:
        if connection.closed:
            self.close_idle()  # what ended one has ended all: the server was restarted
        elif connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
            if self._shut:
                self.close_idle()
        else:
            connection.close()
        with self._free:
            self._lent -= 1
            self._free.notify()

    def shut(self) -> None:
        """Close what is idle, and from now on whatever comes back."""
        self._shut = True
        self.close_idle()

    def close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class Postgresql(peewee.PostgresqlDatabase):  # type: ignore[misc]  # peewee carries no types
    """A connection of its own for the writer's thread, borrowed ones for every other."""

    snapshot_begin = ("REPEATABLE READ",)
    size_sql = "SELECT pg_database_size(current_database())"

    def __init__(self, url: str) -> None:
        # The client's cursor puts parameters in as literals: their types follow from the statement, as on SQLite.
        options = {"cursor_factory": psycopg.ClientCursor, "client_encoding": "utf8", "connect_timeout": 10}
        super().__init__(url, prefer_psycopg3=True, **options)
        self._readers = _Readers(lambda: self._open(_READER))
        self._savepoints = _Savepoints()

    def check(self) -> None:
        """ConfigInvalid unless the server answers and keeps texts as we compare them."""
        try:
            encoding = self.execute_sql("SHOW server_encoding").fetchone()[0]
            bytewise = self.execute_sql("SELECT 'a' > 'B' AND 'a-b' < 'aa'").fetchone()[0]
        except Overloaded as error:
            reason = " ".join(str(error.__cause__).split())
            raise ConfigInvalid(Sentence("storage.database: the server does not let us in: %(reason)s", reason=reason)) from error
        finally:
            self.close_readers()
        if encoding != "UTF8" or not bytewise:
            raise ConfigInvalid(
                "storage.database: the database must have encoding UTF8 and sort by code point; make it by "
                "createdb --template=template0 --encoding=UTF8 --locale=C NAME"
            )

    def statement(self, sql: str) -> str:
        """A statement of ours as the driver wants it."""
        return convert(sql)

    def _open(self, settings: str) -> Any:
        try:
            connection = super()._connect()
            connection.adapters.register_dumper(bool, _FlagDumper)
            connection.execute(_EVERYWHERE + settings)
        except psycopg.OperationalError as error:
            raise Overloaded("the database server does not answer; try again in a moment") from error
        return connection

    def _connect(self) -> Any:
        return self._open(_WRITER)

    def open_own(self) -> Any:
        """A connection for a purpose of its own, outside the pool; whoever asks closes it."""
        return self._open(_READER)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside the block this thread keeps one connection."""
        if not self._state.closed:
            yield
            return
        connection = self._readers.take()
        self._state.set_connection(connection)
        try:
            yield
        finally:
            self._state.reset()
            self._readers.give_back(connection)

    def _execute_cursor(self, sql: str, params: Any, **options: Any) -> Any:
        if not self._state.closed:
            return self._execute_held(sql, params, **options)
        with self.held():
            try:
                return super()._execute_cursor(sql, params, **options)
            except peewee.OperationalError:
                if not self._state.conn.closed:
                    raise
        with self.held():  # the server went away since; a reading statement may be asked twice
            return super()._execute_cursor(sql, params, **options)

    def _execute_held(self, sql: str, params: Any, **options: Any) -> Any:
        """One statement on the connection of this thread, behind what was not sent of savepoints; answers what it came to."""
        unsent = self._savepoints.unsent()
        if not unsent:
            return super()._execute_cursor(sql, params, **options)
        try:
            cursor = super()._execute_cursor(unsent + sql, params, **options)
        except BaseException:
            if self._state.conn.info.transaction_status != TransactionStatus.INTRANS:  # else the driver sent nothing
                self._savepoints.forget()
            raise
        self._savepoints.forget()
        while cursor.nextset():
            pass
        return cursor

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Inside the block the server ends a statement of this thread that takes so much time; TimedOut."""
        with self.held():
            connection = self.connection()
            connection.execute(f"SET statement_timeout = {int(seconds * 1000)}")
            try:
                yield
            except peewee.OperationalError as error:
                if not isinstance(error.orig, psycopg.errors.QueryCanceled):
                    raise
                raise TimedOut(TOO_SLOW.format(seconds=seconds)) from error
            finally:
                if not connection.closed and connection.info.transaction_status != TransactionStatus.INERROR:
                    connection.execute("RESET statement_timeout")  # to what the server, the role or the database says

    def begin_write(self) -> None:
        """Begin the only writing transaction there is now, over all processes, as on SQLite.

        Everything inside `db.write` looks before it changes, and numbers that the database gives become visible in
        their order: both hold because writers take turns, not because each place would lock what it looked at.
        """
        lost = False
        self._savepoints.forget()
        while True:
            if self._state.closed:
                self.connect()
            try:
                self.execute_sql(f"BEGIN; SELECT pg_advisory_xact_lock({WRITER_LOCK})")
                return
            except peewee.OperationalError:
                again = self._state.conn.closed and not lost
                self.roll_back()
                if not again:
                    raise
                lost = True

    def commit_write(self) -> None:
        """Return when what was written is on disk."""
        self._savepoints.forget()  # they end with it
        self.execute_sql("COMMIT")

    def set_savepoint(self) -> str:
        """The name of a point of the writer's transaction that one can go back to."""
        return self._savepoints.set()

    def release_savepoint(self, name: str) -> None:
        """What was done since stays."""
        self._savepoints.release(name)

    def undo_savepoint(self, name: str) -> None:
        """What was done since is undone."""
        if (statement := self._savepoints.undo(name)) is not None:
            self.execute_sql(statement)

    def roll_back(self) -> None:
        """End the writer's transaction; with a lost connection the server does it."""
        self._savepoints.forget()
        if self._state.closed:
            return
        if self._state.conn.closed:
            self.close()
        elif self._state.conn.info.transaction_status != TransactionStatus.IDLE:
            self.execute_sql("ROLLBACK")

    def close_readers(self) -> None:
        """Close the connections nobody uses now."""
        self._readers.close_idle()

    def shut_readers(self) -> None:
        """Close the readers for good: those that a thread still uses when it gives them back."""
        self._readers.shut()


class LockPresence(Presence):
    """Presence over several machines: a lock that the server drops when the session of its process ends."""

    def __init__(self, database: Postgresql) -> None:
        self.instance = ids.new("wrk")
        self._database = database
        self._mutex = threading.Lock()
        self._connection: Any = None
        self._closed = False
        self._asked_at = 0.0
        self.renew()

    def is_alive(self, owner: str) -> bool:
        """Whether the process that called itself `owner` holds its lock, on whatever machine."""
        if clock.monotonic() - self._asked_at > 1:
            self.renew()
        if owner == self.instance:
            return True
        high, low = divmod(lock_of(owner), 1 << 32)
        found = self._database.execute_sql(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND classid::bigint = %s "
            "AND objid::bigint = %s AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (high, low),
        )
        return found.fetchone() is not None

    def sweep(self) -> list[str]:
        """Nothing is left of a dead process."""
        return []

    def close(self) -> None:
        """Give the lock back; whatever this process still owned may be reclaimed."""
        with self._mutex:
            self._closed = True
            self._connection.close()

    def renew(self) -> None:
        """Hold the lock still, or again when the server was restarted."""
        with self._mutex:
            if self._closed:
                return
            try:
                if self._connection is not None:
                    self._connection.execute("SELECT 1")
            except psycopg.OperationalError:
                self._connection = None
            if self._connection is None:
                self._connection = self._database.open_own()
                self._connection.execute(f"SELECT pg_advisory_lock({_signed(lock_of(self.instance))})")
            self._asked_at = clock.monotonic()


def lock_of(owner: str) -> int:
    """The number of the advisory lock that the process of this name holds."""
    return int.from_bytes(sha256(_PRESENCE + owner.encode()).digest()[:8], "big")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
