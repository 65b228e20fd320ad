"""The database: read connections per thread, writers, and base classes of the models.

`write` runs a function on a writer and returns its result only after the commit that contains it is on disk
(`synchronous=FULL`).  With one writer, functions that arrive during a commit share the next one, each inside its own savepoint;
an exception rolls back only the function that raised it.
"""

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import peewee

from appliance.core.errors import ConfigInvalid, Overloaded, StorageFull, UnscopedQuery
from appliance.core.sentences import Sentence

from . import caches
from .sqlite import Sqlite
from .write_guards import WriteGuard, current_guard
from .writers import Job, Writers, state

T = TypeVar("T")
log = logging.getLogger(__name__)

database = peewee.DatabaseProxy()
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


_writers: Writers | None = None


def open_database(url: str, writers: int = 1) -> None:
    """Open the database at `url` (`sqlite:///path`, `postgresql://…`) for the whole process.

    `writers`: the most connections through which this process writes to a server; SQLite always has one.
    """
    global _writers
    caches.empty_all()
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        database.initialize(Sqlite(str(path), is_writing=lambda: state.inside))
    elif url.startswith("postgresql://"):
        database.initialize(connect_server(url, writers))
    else:
        kind = repr(url.split(":", maxsplit=1)[0])
        raise ConfigInvalid(Sentence("storage.database: %(url)s is not supported; use sqlite:///PATH or postgresql://…", url=kind))
    _writers = Writers(database.obj)


@contextmanager
def use_connection(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """In the block, the open database is an SQLite connection of the caller, and this thread is inside its transaction: `write`
    runs functions at once, and the caller commits or rolls back all of them."""
    database.initialize(Sqlite(str(path), is_writing=lambda: True))
    database.obj._state.set_connection(connection)
    state.inside = True
    try:
        yield
    finally:
        state.inside = False
        database.obj._state.reset()


def connect_server(url: str, writers: int = 1) -> Any:
    """A PostgreSQL database, which need not be the one that `open_database` opens; ConfigInvalid if it cannot be used."""
    try:
        from .postgresql import Postgresql
    except ImportError as error:
        raise ConfigInvalid("storage.database: PostgreSQL needs its driver; run pip install 'gos-appliance[postgresql]'") from error
    server = Postgresql(url, writers)
    server.check()
    return server


def close_database() -> None:
    """Finish all submitted writes, then close the connections of this thread and of the writers."""
    global _writers
    if _writers is not None:
        _writers.close()
        _writers = None
    if database.obj is not None and not database.is_closed():
        database.close()
    if database.obj is not None and not is_sqlite():
        database.obj.shut_readers()


def is_sqlite() -> bool:
    """Whether the database is SQLite; for use in this package and in `appliance/migrations` only."""
    return isinstance(database.obj, peewee.SqliteDatabase)


def is_shared() -> bool:
    """Whether the database is on a server, which processes of several machines share: what one counts in memory is not all."""
    return bool(database.obj.shares_writes)


def get_size() -> int:
    """The size of the database, without the write-ahead log of an SQLite file."""
    ((size,),) = rows(database.obj.size_sql)
    return int(size)


def writer_depth() -> int:
    """The number of functions that wait for a writer."""
    return _writers.depth() if _writers else 0


def is_full() -> bool:
    """Whether a write of this process failed because the disk is full, and `probe_free_space` has not succeeded since."""
    return _writers is not None and _writers.is_full


def probe_free_space(size: int) -> bool:
    """Whether `size` bytes can be written, tested with a write that is rolled back; called while `is_full`."""
    try:
        write(partial(_try_write, size))
    except _TrialSucceeded:
        _running_writers().is_full = False
        log.warning("the disk has free space again; writes are accepted")
    except StorageFull:
        return False
    return True


class _TrialSucceeded(Exception):
    """The trial write succeeded; raised so that it is rolled back."""


def _try_write(size: int) -> None:
    execute("CREATE TABLE room_trial (filler TEXT NOT NULL)")
    execute("INSERT INTO room_trial VALUES (?)", (os.urandom(size // 2).hex(),))
    raise _TrialSucceeded


def log_failure(logger: logging.Logger, error: Exception, message: str, *args: Any) -> None:
    """Log a failure that will be retried, with its traceback.  A server that does not respond is logged in one line; so is a full
    disk, and once only."""
    if isinstance(error, StorageFull):
        logger.log(logging.DEBUG if is_full() else logging.WARNING, "%s: %s", message % args, error.message)
    elif isinstance(error, Overloaded):
        logger.warning("%s: %s", message % args, error.message)
    else:
        logger.error(message, *args, exc_info=error)


def submit(fn: Callable[[], T], *, is_shared: bool = False) -> "Future[T]":
    """Like `write`, without waiting: the future is resolved after the commit.  `fn` must be repeatable, as there."""
    guard = None if state.inside else current_guard()
    job = Job(fn if guard is None else partial(_write_guarded, guard, fn), is_shared=is_shared)
    if state.inside:
        try:
            job.future.set_result(write(fn, is_shared=is_shared))
        except Exception as error:  # noqa: BLE001  raised by the future
            job.future.set_exception(error)
    else:
        _running_writers().submit(job)
    return job.future


def _write_guarded(guard: WriteGuard, fn: Callable[[], T]) -> T:
    """Inside a write: run `fn`, unless the guard refuses it; asked together with the first statement of `fn`."""
    look_ahead(guard.sql, guard.params)
    result = fn()
    if rows(guard.sql, guard.params):
        raise guard.refuse()
    return result


def write(fn: Callable[[], T], *, is_shared: bool = False) -> T:
    """Run `fn` in a transaction and return its result once the transaction is durable; re-entrant inside a write.

    `fn` must be repeatable, because a transaction that fails can be run again from its start: it computes from values that it
    does not change, returns its results, and has effects outside the database only by `after_commit`.

    In a request, it is refused if the request's guard says so (`write_guards`).

    While it runs, nothing else is written, in any process, so that it may look before it changes. `is_shared`: on a server, other
    shared functions run beside it. Each of its changes must then be safe on its own: by a unique constraint, by a fence or
    version that it compares, or by a row that it has locked (`row_lock`). Where it does come to look before it changes, it calls
    `require_exclusive`; so does `write` without `is_shared` inside of it.
    """
    if state.inside:
        if not is_shared:
            require_exclusive()
        return fn()
    return submit(fn, is_shared=is_shared).result()


def is_inside_write() -> bool:
    """Whether the caller runs inside a write, whose changes may still be rolled back."""
    return state.inside


def require_exclusive() -> None:
    """Inside a write: what follows needs a write without others beside it; a shared one runs again from its start as such."""
    if state.job is not None:
        state.job.require_exclusive()


def insert_followed(table: str, sql: str, params: tuple[Any, ...]) -> None:
    """Inside a write: insert rows into a table whose followers read on from a number; the numbers become visible in order.

    A shared write inserts them with its commit, one such write at a time, so it cannot read them itself.
    """
    job = _current_job("insert_followed")
    if job.is_shared:
        job.followed.append((table, sql, params))
    else:
        execute(sql, params)


def skip_locked() -> str:
    """The end of a SELECT inside a write that leaves out rows which others have locked, and locks those it finds."""
    return f"{lock} SKIP LOCKED" if (lock := row_lock()) else ""


def row_lock() -> str:
    """The end of a SELECT whose rows others must not change before the commit; empty on SQLite, and outside a write."""
    return database.obj.row_lock if state.inside else ""


def _running_writers() -> Writers:
    if _writers is None:
        raise RuntimeError("the database is closed")
    return _writers


def after_commit(fn: Callable[[], None]) -> None:
    """Inside a write: call `fn` once the commit is durable, or not at all if the write fails."""
    _current_job("after_commit").callbacks.append(fn)


def always_write(fn: Callable[[], Any]) -> None:
    """Inside a write: run `fn` as its last part or, after a rollback, in another write before the caller gets the error."""
    _current_job("in_any_case").unconditional.append(fn)


def _current_job(verb: str) -> Job:
    if state.job is None:
        raise RuntimeError(f"{verb} must be called inside db.write")
    return state.job


def snapshot() -> AbstractContextManager[None]:
    """Inside the block, all reads of this thread see the same state of the database."""
    reads: AbstractContextManager[None] = nullcontext() if state.inside else database.obj.snapshot()
    return reads


def deadline(seconds: float) -> AbstractContextManager[None]:
    """Limit the duration of each read statement of this thread inside the block; TimedOut."""
    limited: AbstractContextManager[None] = database.obj.deadline(seconds)
    return limited


@contextmanager
def savepoint() -> Iterator[None]:
    """Inside a write: roll back the changes of the block if it raises, without the rest of the write."""
    followed = _current_job("savepoint").followed
    count = len(followed)
    point = database.obj.set_savepoint()
    try:
        yield
    except BaseException:
        del followed[count:]
        database.obj.undo_savepoint(point)
        raise
    database.obj.release_savepoint(point)


@contextmanager
def rehearsal() -> Iterator[None]:
    """Inside a write: undo whatever the block does, and forget what it would do after the commit."""
    job = _current_job("rehearsal")
    registered = [(each, len(each)) for each in (job.callbacks, job.unconditional, job.followed)]
    point = database.obj.set_savepoint()
    try:
        yield
    finally:
        for each, count in registered:
            del each[count:]
        database.obj.undo_savepoint(point)


def rows(sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Run an SQL query and return its rows; parameters are `?` on both databases."""
    fetched: list[tuple[Any, ...]] = database.obj.fetch_rows(sql, params)
    return fetched


def execute(sql: str, params: tuple[Any, ...] = ()) -> int:
    """Run an SQL statement inside a write; returns the number of changed rows."""
    return int(database.obj.execute_sql(database.obj.statement(sql), params).rowcount)


def send(sql: str, params: tuple[Any, ...] = ()) -> None:
    """Inside a write: change rows of which no answer is needed.  On a server, that costs no round trip of its own.

    For statements that cannot be refused: an error is raised by a later statement of the write, or by its commit.
    """
    database.obj.send(sql, params)


def look_ahead(sql: str, params: tuple[Any, ...] = ()) -> None:
    """Inside a write: announce a query that `rows` will run.  On a server, its rows then come with those of the next statement.

    For tables that the write does not change before it uses the rows.
    """
    database.obj.look_ahead(sql, params)


def try_execute(sql: str, params: tuple[Any, ...] = ()) -> int:
    """As `execute`; if it fails, nothing of it remains and the write can go on."""
    return int(database.obj.try_statement(sql, params))


class JsonField(peewee.TextField):  # type: ignore[misc]  # peewee carries no types
    """JSON stored as compact text."""

    if TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type) -> Any: ...

    def db_value(self, value: Any) -> str | None:
        return None if value is None else dump_json(value)

    def python_value(self, value: str | None) -> Any:
        return None if value is None else json.loads(value)


def dump_json(value: Any) -> str:
    """Serialize a value as compact JSON; ValueError for NaN and infinities, which are not JSON."""
    return _encoder.encode(value)


class PlatformModel(peewee.Model):  # type: ignore[misc]
    """Base class of rows that belong to the appliance itself (tenants, users, keys)."""

    class Meta:
        database = database
        legacy_table_names = False


def _unscoped(verb: str) -> Any:
    def raise_unscoped(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnscopedQuery(f"{cls.__name__}.{verb}(): go through a TenantScope")

    return classmethod(raise_unscoped)


class TenantModel(PlatformModel):
    """Base class of rows that belong to a tenant; only a TenantScope can query them.

    `label` is the name of such a row in messages ("process").
    """

    label = "row"
    tenant_id = peewee.TextField()

    for _verb in (
        "select", "insert", "insert_many", "insert_from", "replace", "replace_many", "update", "delete", "raw", "alias",
        "noop", "bulk_update", "create_table", "truncate_table", "drop_table",
    ):  # fmt: skip
        locals()[_verb] = _unscoped(_verb)
    del _verb
