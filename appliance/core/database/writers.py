"""The writers: threads that run the functions given to `db.write` in transactions, and answer after the commit.

SQLite has one, and functions that arrive during a commit share the next one. A server has several: each function has a
transaction of its own, shared functions run side by side, in whichever process, and all others alone.
"""

import logging
import random
import re
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import peewee

from appliance.core.errors import Overloaded, StorageFull

log = logging.getLogger(__name__)

MAX_BATCH = 128
MOST_ATTEMPTS = 40
_LONGEST_PAUSE = 0.1  # seconds between two attempts
_DISK = re.compile("full|disk I/O|No space left on device")
_pause = threading.Event()


class WriterState(threading.local):
    """Whether the current thread is a writer, and the job that it runs."""

    inside = False
    job: "Job | None" = None


state = WriterState()


class Job:
    """A function to run in a transaction, and what follows from it; `is_shared` as in `db.write`."""

    __slots__ = ("callbacks", "error", "fn", "followed", "future", "has_looked_again", "is_shared", "result", "unconditional")

    def __init__(self, fn: Callable[[], Any], *, is_shared: bool = False) -> None:
        self.fn = fn
        self.is_shared = is_shared
        self.has_looked_again = False
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.unconditional: list[Callable[[], Any]] = []
        self.followed: list[tuple[str, str, tuple[Any, ...]]] = []  # As given to `db.insert_followed`.

    def require_exclusive(self) -> None:
        """Inside the function: run it again from its start, with no other write beside it, unless it runs so."""
        if self.is_shared:
            raise _ExclusiveRequired

    def is_final(self) -> bool:
        """Whether the attempt counts, which ended as the function wanted.

        The row that violates a constraint may be newer than what a shared function has seen, so it looks once more.
        """
        if isinstance(self.error, _ExclusiveRequired):
            self.is_shared = False
            return False
        is_outdated = self.is_shared and isinstance(self.error, peewee.IntegrityError) and not self.has_looked_again
        self.has_looked_again = is_outdated
        return not is_outdated

    def reset(self) -> None:
        """Forget the last attempt, whose changes have been rolled back."""
        self.result = self.error = None
        self.callbacks.clear()
        self.unconditional.clear()
        self.followed.clear()


class _ExclusiveRequired(BaseException):
    """The function must run without others beside it; not an Exception, so that it cannot be taken for a failure."""


class Writers:
    """Threads that run the submitted jobs, and resolve their futures after the commit."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._exclusive: deque[Job] = deque()
        self._shared: deque[Job] = deque()
        self._wake = threading.Condition(threading.Lock())
        self._is_exclusive_busy = False
        self._is_closed = False
        self._repeating = threading.Lock()
        self.is_full = False
        self._threads = [threading.Thread(target=self._run, name="db-writer", daemon=True) for _ in range(db.writers)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Add a job."""
        job.is_shared &= self._db.shares_writes
        with self._wake:
            (self._shared if job.is_shared else self._exclusive).append(job)
            self._wake.notify()

    def close(self) -> None:
        """End the threads once all submitted jobs are done."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def depth(self) -> int:
        """The number of jobs that wait."""
        return len(self._exclusive) + len(self._shared)

    def _run(self) -> None:
        state.inside = True
        while (batch := self._take()) is not None:
            is_exclusive = bool(batch) and not batch[0].is_shared
            if batch:
                self._commit(batch)
            if is_exclusive:
                with self._wake:
                    self._is_exclusive_busy = False
                    self._wake.notify_all()
        self._db.close()

    def _take(self) -> list[Job] | None:
        """The jobs of the next transaction: a shared one, or all exclusive ones that wait; None once the writers are closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._is_closed or self._shared or self._has_exclusive())
            if self._has_exclusive():
                batch = [self._exclusive.popleft() for _ in range(min(len(self._exclusive), MAX_BATCH))]
            elif self._shared:
                batch = [self._shared.popleft()]
            else:
                return None
            batch = [job for job in batch if job.future.set_running_or_notify_cancel()]
            self._is_exclusive_busy |= bool(batch) and not batch[0].is_shared
            return batch

    def _has_exclusive(self) -> bool:
        """Whether there are exclusive jobs for a thread: one at a time, so that they share their commit."""
        return bool(self._exclusive) and not self._is_exclusive_busy

    def _commit(self, batch: list[Job]) -> None:
        try:
            self._attempt_until_done(batch)
        except Exception as error:  # noqa: BLE001  raised to every caller of the batch
            coded = self._cause(batch, error)
            for job in batch:
                job.future.set_exception(self._storage_error(job.error or coded))
            return
        if lasting := [Job(fn) for job in batch if job.error is not None for fn in job.unconditional]:
            self._commit(lasting)  # Before resolving the futures, so that callers who see the failure find these rows.
            for lost in filter(None, (job.future.exception() for job in lasting)):
                log.error("a write registered with in_any_case was lost", exc_info=lost)
        self._answer(batch)

    def _attempt_until_done(self, batch: list[Job]) -> None:
        """Run the jobs and commit, again after a deadlock or a lost connection; from the third attempt on, one job at a time."""
        for attempt in range(1, 3):
            if self._attempt(batch, attempt):
                return
        with self._repeating:
            for attempt in range(3, MOST_ATTEMPTS + 1):
                if self._attempt(batch, attempt):
                    return

    def _attempt(self, batch: list[Job], number: int) -> bool:
        """Run the jobs in a transaction, and commit; False if they have to run again."""
        try:
            self._transact(batch)
        except Exception as error:
            if not self._db.can_repeat():
                raise
            if number == MOST_ATTEMPTS:
                batch[0].error = None
                raise Overloaded("too many changes of the same rows at once; try again in a moment") from error
            is_done = False
        else:
            is_done = len(batch) > 1 or batch[0].is_final()
        if is_done:
            return True
        for job in batch:
            job.reset()
        if number > 1:
            _pause.wait(random.uniform(0, min(_LONGEST_PAUSE, 0.001 * 2**number)))  # noqa: S311  not a secret
        return False

    def _transact(self, batch: list[Job]) -> None:
        self._db.begin_write(is_shared=batch[0].is_shared)
        try:
            for job in batch:
                run_in_savepoint(self._db, job, alone=len(batch) == 1)
            if len(batch) == 1 and batch[0].error is not None:
                if self._db.can_repeat():
                    raise batch[0].error
                self._db.roll_back()
            else:
                self._commit_changes(batch)
        except BaseException:
            self._db.roll_back()
            raise

    def _commit_changes(self, batch: list[Job]) -> None:
        """Commit; the last changes of a single job are only sent now, so what they violate is its error like any other."""
        try:
            self._db.commit_write(batch[0].followed)
        except peewee.IntegrityError as error:
            if len(batch) > 1:
                raise
            self._db.roll_back()
            batch[0].error = error
            batch[0].callbacks.clear()

    def _answer(self, batch: list[Job]) -> None:
        for job in batch:
            for callback in job.callbacks:
                try:
                    callback()
                except Exception:
                    log.exception("a callback after a commit failed")
            if job.error is not None:
                job.future.set_exception(self._storage_error(job.error))
            else:
                job.future.set_result(job.result)

    def _cause(self, batch: list[Job], error: BaseException) -> BaseException:
        """The reason why a commit failed; on a full disk, SQLite drops the transaction, and the error of a job has the reason."""
        coded = [self._storage_error(each) for each in (error, *(job.error for job in batch)) if each is not None]
        return next((each for each in coded if isinstance(each, StorageFull)), error)

    def _storage_error(self, error: BaseException) -> BaseException:
        if not (isinstance(error, peewee.OperationalError) and _DISK.search(str(error))):
            return error
        if not self.is_full:  # logged once, until a write succeeds again
            self.is_full = True
            log.error("the disk is full or failing (%s): writes are refused, reads continue; free some space", error)
        return StorageFull("the disk of the appliance is full or failing; free space and try again")


def run_in_savepoint(db: Any, job: Job, *, alone: bool) -> None:
    """Run a job, inside a savepoint unless it is `alone` in its transaction; its result or error is in the job afterwards.

    `tests/repeated_writes.py` replaces it in order to run each job twice.
    """
    point = None if alone else db.set_savepoint()
    state.job = job
    try:
        job.result = job.fn()
        for fn in job.unconditional:
            fn()
        if point is not None:
            db.flush()  # so that an error of this job does not become one of the next
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
        state.job = None
