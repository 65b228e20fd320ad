"""The database: read connections per thread, a single writer with group commit, and base classes of the models.

`write` runs a function on the single writer, inside its own savepoint, and returns its result only after the commit that
contains it is on disk (`synchronous=FULL`).  Functions that arrive during a commit share the next one; an exception rolls
back only the function that raised it.
"""

import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import peewee

from appliance.core.errors import ConfigInvalid, StorageFull, UnscopedQuery
from appliance.core.sentences import Sentence

from . import caches
from .sqlite import Sqlite

T = TypeVar("T")
log = logging.getLogger(__name__)

database = peewee.DatabaseProxy()
MAX_BATCH = 128
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _WriterState(threading.local):
    inside = False
    job: "_Job | None" = None


_writer_state = _WriterState()


class _Job:
    __slots__ = ("callbacks", "error", "fn", "future", "result", "unconditional")

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.unconditional: list[Callable[[], Any]] = []


class _Writer(threading.Thread):
    """Runs all submitted jobs in one transaction, and resolves their futures after the commit."""

    def __init__(self, db: Any) -> None:
        super().__init__(name="db-writer", daemon=True)
        self._db = db
        self._jobs: deque[_Job | None] = deque()
        self._wake = threading.Condition(threading.Lock())
        self.is_full = False

    def record_full_disk(self, reason: str) -> None:
        """Record that the disk is full; logs it once, until a write succeeds again."""
        if not self.is_full:
            self.is_full = True
            log.error("the disk is full or failing (%s): writes are refused, reads continue; free some space", reason)

    def submit(self, job: _Job | None) -> None:
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def depth(self) -> int:
        return len(self._jobs)

    def run(self) -> None:
        _writer_state.inside = True
        while (batch := self._take()) is not None:
            self._commit(batch)
        self._db.close()

    def _take(self) -> list[_Job] | None:
        with self._wake:
            while not self._jobs:
                self._wake.wait()
            if self._jobs[0] is None:
                return None
            batch: list[_Job] = []
            while self._jobs and len(batch) < MAX_BATCH and (job := self._jobs[0]) is not None:
                self._jobs.popleft()
                if job.future.set_running_or_notify_cancel():
                    batch.append(job)
            return batch

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._db.begin_write()
            try:
                for job in batch:
                    _run_in_savepoint(self._db, job, alone=len(batch) == 1)
                if len(batch) == 1 and batch[0].error is not None:
                    self._db.roll_back()
                else:
                    self._db.commit_write()
            except BaseException:
                self._db.roll_back()
                raise
        except Exception as error:  # noqa: BLE001  raised to every caller of the batch
            coded = _cause(batch, error)
            for job in batch:
                job.future.set_exception(_storage_error(job.error or coded))
            return
        if lasting := [_Job(fn) for job in batch if job.error is not None for fn in job.unconditional]:
            self._commit(lasting)  # Before resolving the futures, so that callers who see the failure find these rows.
            for lost in filter(None, (job.future.exception() for job in lasting)):
                log.error("a write registered with in_any_case was lost", exc_info=lost)
        _answer(batch)


def _run_in_savepoint(db: Any, job: _Job, *, alone: bool) -> None:
    point = None if alone else db.set_savepoint()
    _writer_state.job = job
    try:
        job.result = job.fn()
        for fn in job.unconditional:
            fn()
        if not db.is_connection_usable():  # PostgreSQL would answer COMMIT with a rollback.
            raise peewee.InternalError("a statement failed inside db.write and its error was ignored; wrap it in db.savepoint")
    except BaseException as error:  # noqa: BLE001  raised to the caller
        job.error = error
        job.callbacks.clear()
        if point is not None:
            db.undo_savepoint(point)
    else:
        if point is not None:
            db.release_savepoint(point)
    finally:
        _writer_state.job = None


def _answer(batch: list[_Job]) -> None:
    for job in batch:
        for callback in job.callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback after a commit failed")
        if job.error is not None:
            job.future.set_exception(_storage_error(job.error))
        else:
            job.future.set_result(job.result)


def _cause(batch: list[_Job], error: BaseException) -> BaseException:
    """The reason why a commit failed; on a full disk, SQLite drops the transaction, and the error of a job has the reason."""
    coded = [_storage_error(each) for each in (error, *(job.error for job in batch)) if each is not None]
    return next((each for each in coded if isinstance(each, StorageFull)), error)


_DISK = re.compile("full|disk I/O|No space left on device")


def _storage_error(error: BaseException) -> BaseException:
    if isinstance(error, peewee.OperationalError) and _DISK.search(str(error)):
        if _writer is not None:
            _writer.record_full_disk(str(error))
        return StorageFull("the disk of the appliance is full or failing; free space and try again")
    return error


_writer: _Writer | None = None


def open_database(url: str) -> None:
    """Open the database at `url` (`sqlite:///path`, `postgresql://…`) for the whole process."""
    global _writer
    caches.empty_all()
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        database.initialize(Sqlite(str(path), is_writing=lambda: _writer_state.inside))
    elif url.startswith("postgresql://"):
        database.initialize(_postgresql(url))
    else:
        kind = repr(url.split(":", maxsplit=1)[0])
        raise ConfigInvalid(Sentence("storage.database: %(url)s is not supported; use sqlite:///PATH or postgresql://…", url=kind))
    _writer = _Writer(database.obj)
    _writer.start()


def _postgresql(url: str) -> Any:
    try:
        from .postgresql import Postgresql
    except ImportError as error:
        raise ConfigInvalid("storage.database: PostgreSQL needs its driver; run pip install 'gos-appliance[postgresql]'") from error
    server = Postgresql(url)
    server.check()
    return server


def close_database() -> None:
    """Finish all submitted writes, then close the connections of this thread and of the writer."""
    global _writer
    if _writer is not None:
        _writer.submit(None)
        _writer.join()
        _writer = None
    if database.obj is not None and not database.is_closed():
        database.close()
    if database.obj is not None and not is_sqlite():
        database.obj.shut_readers()


def is_sqlite() -> bool:
    """Whether the database is SQLite; for use in this package and in `appliance/migrations` only."""
    return isinstance(database.obj, peewee.SqliteDatabase)


def get_size() -> int:
    """The size of the database, without the write-ahead log of an SQLite file."""
    ((size,),) = rows(database.obj.size_sql)
    return int(size)


def writer_depth() -> int:
    """The number of functions that wait for the writer."""
    return _writer.depth() if _writer else 0


def is_full() -> bool:
    """Whether a write of this process failed because the disk is full, and `probe_free_space` has not succeeded since."""
    return _writer is not None and _writer.is_full


def probe_free_space(size: int) -> bool:
    """Whether `size` bytes can be written, tested with a write that is rolled back; called while `is_full`."""
    try:
        write(partial(_try_write, size))
    except _TrialSucceeded:
        _running_writer().is_full = False
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
    """Log a failure that will be retried, with its traceback.  A full disk is logged in one line, and once only."""
    if isinstance(error, StorageFull):
        logger.log(logging.DEBUG if is_full() else logging.WARNING, "%s: %s", message % args, error.message)
    else:
        logger.error(message, *args, exc_info=error)


def submit(fn: Callable[[], T]) -> "Future[T]":
    """Like `write`, without waiting: the future is resolved after the commit."""
    job = _Job(fn)
    if _writer_state.inside:
        try:
            job.future.set_result(write(fn))
        except BaseException as error:  # noqa: BLE001  raised by the future
            job.future.set_exception(error)
    else:
        _running_writer().submit(job)
    return job.future


def write(fn: Callable[[], T]) -> T:
    """Run `fn` in a transaction and return its result once the transaction is durable; re-entrant inside a write."""
    if _writer_state.inside:
        return fn()
    return submit(fn).result()


def _running_writer() -> _Writer:
    if _writer is None:
        raise RuntimeError("the database is closed")
    return _writer


def after_commit(fn: Callable[[], None]) -> None:
    """Inside a write: call `fn` once the commit is durable, or not at all if the write fails."""
    _current_job("after_commit").callbacks.append(fn)


def always_write(fn: Callable[[], Any]) -> None:
    """Inside a write: run `fn` as its last part or, after a rollback, in another write before the caller gets the error."""
    _current_job("in_any_case").unconditional.append(fn)


def _current_job(verb: str) -> _Job:
    if _writer_state.job is None:
        raise RuntimeError(f"{verb} must be called inside db.write")
    return _writer_state.job


def snapshot() -> AbstractContextManager[None]:
    """Inside the block, all reads of this thread see the same state of the database."""
    state: AbstractContextManager[None] = nullcontext() if _writer_state.inside else database.obj.snapshot()
    return state


def deadline(seconds: float) -> AbstractContextManager[None]:
    """Limit the duration of each read statement of this thread inside the block; TimedOut."""
    limited: AbstractContextManager[None] = database.obj.deadline(seconds)
    return limited


@contextmanager
def savepoint() -> Iterator[None]:
    """Inside a write: roll back the changes of the block if it raises, without the rest of the write."""
    point = database.obj.set_savepoint()
    try:
        yield
    except BaseException:
        database.obj.undo_savepoint(point)
        raise
    database.obj.release_savepoint(point)


def rows(sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Run an SQL query and return its rows; parameters are `?` on both databases."""
    fetched: list[tuple[Any, ...]] = database.obj.fetch_rows(sql, params)
    return fetched


def execute(sql: str, params: tuple[Any, ...] = ()) -> int:
    """Run an SQL statement inside a write; returns the number of changed rows."""
    return int(database.obj.execute_sql(database.obj.statement(sql), params).rowcount)


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
