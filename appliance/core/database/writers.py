"""The writers: threads that run the functions given to `db.write`, each inside a transaction, and answer after its commit."""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import peewee

from appliance.core.errors import StorageFull

log = logging.getLogger(__name__)

MAX_BATCH = 128
_DISK = re.compile("full|disk I/O|No space left on device")


class WriterState(threading.local):
    """Whether the current thread is a writer, and the job that it runs."""

    inside = False
    job: "Job | None" = None


state = WriterState()


class Job:
    """A function to run in a transaction, and what follows from it."""

    __slots__ = ("callbacks", "error", "fn", "future", "result", "unconditional")

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.unconditional: list[Callable[[], Any]] = []


class Writer(threading.Thread):
    """Runs all submitted jobs in one transaction, and resolves their futures after the commit."""

    def __init__(self, db: Any) -> None:
        super().__init__(name="db-writer", daemon=True)
        self._db = db
        self._jobs: deque[Job | None] = deque()
        self._wake = threading.Condition(threading.Lock())
        self.is_full = False

    def submit(self, job: Job | None) -> None:
        """Add a job; None ends the writer after those submitted before."""
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def depth(self) -> int:
        """The number of jobs that wait."""
        return len(self._jobs)

    def run(self) -> None:
        state.inside = True
        while (batch := self._take()) is not None:
            self._commit(batch)
        self._db.close()

    def _take(self) -> list[Job] | None:
        with self._wake:
            while not self._jobs:
                self._wake.wait()
            if self._jobs[0] is None:
                return None
            batch: list[Job] = []
            while self._jobs and len(batch) < MAX_BATCH and (job := self._jobs[0]) is not None:
                self._jobs.popleft()
                if job.future.set_running_or_notify_cancel():
                    batch.append(job)
            return batch

    def _commit(self, batch: list[Job]) -> None:
        try:
            self._db.begin_write()
            try:
                for job in batch:
                    run_in_savepoint(self._db, job, alone=len(batch) == 1)
                if len(batch) == 1 and batch[0].error is not None:
                    self._db.roll_back()
                else:
                    self._db.commit_write()
            except BaseException:
                self._db.roll_back()
                raise
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
