"""Runs each function of `db.write` twice, the first time in vain, as after a transaction that the database asks to repeat.

The first run is rolled back, without its callbacks.  Both runs begin with the same database, so they must make the same
changes and end alike; where they do not, the function depends on something outside the database that it has changed.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import peewee
import pytest

from appliance.core.database import writers
from appliance.core.database.writers import Job

ORIGINAL_RUN = writers.run_in_savepoint
# On PostgreSQL, they are sent with the next statement.
_TRANSACTION = re.compile(r"BEGIN; SELECT pg_advisory_xact_lock(_shared)?\(-?\d+\); |(ROLLBACK TO |RELEASE )?SAVEPOINT \w+(; )?")
_NEW_NAME = re.compile(r"[0-9a-f]{16}")  # of the table of a new collection

differences: list[str] = []  # The functions whose second run was another than the first, for the test that ran them to fail.


class _Trace:
    """What a run of a job did: its statements but queries, which a cache can save, the number of its callbacks and its error."""

    def __init__(self, db: Any, job: Job, *, alone: bool) -> None:
        self.statements: list[str] = []
        self._thread = get_ident()
        db.query_hooks.append(self._add)
        try:
            ORIGINAL_RUN(db, job, alone=alone)
        finally:
            db.query_hooks.remove(self._add)
        error = "no error" if job.error is None else type(job.error).__name__
        self.steps = [*self.statements, f"its end with {error} and {len(job.callbacks)} callbacks"]

    def _add(self, event: Any) -> None:
        if get_ident() == self._thread and (sql := _TRANSACTION.sub("", event.sql)) and not sql.startswith("SELECT"):
            self.statements.append(_NEW_NAME.sub("…", sql))


def _run_twice(db: Any, job: Job, *, alone: bool) -> None:
    point = db.set_savepoint()
    trial = Job(job.fn)
    first = _Trace(db, trial, alone=True)
    try:
        db.undo_savepoint(point)
    except peewee.OperationalError:  # The transaction has ended, for example on a full disk.
        job.error = trial.error
        raise
    second = _Trace(db, job, alone=alone)
    for one, other in zip(first.steps, second.steps, strict=False):
        if one != other:
            differences.append(f"{_place(job.fn)} came first to {one!r}, then to {other!r}")
            return


def _place(fn: Any) -> str:
    """The function's file, line and name, also if it is in a `partial`."""
    while hasattr(fn, "func"):
        fn = fn.func
    code = getattr(fn, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}" if code else repr(fn)


def repeat_writes() -> None:
    """Repeat the writes of this process from now on."""
    writers.run_in_savepoint = _run_twice


@contextmanager
def repeated() -> Iterator[None]:
    """Repeat the writes of this process in the block, and fail after it if one was not repeatable."""
    with _replaced(_run_twice):
        yield
    check_repeatable()


@contextmanager
def unrepeated() -> Iterator[None]:
    """Run each write of this process once in the block."""
    with _replaced(ORIGINAL_RUN):
        yield


@contextmanager
def _replaced(run: Callable[..., None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "run_in_savepoint", run)
        yield


def check_repeatable() -> None:
    """Fail if a write was not repeatable since the last call."""
    messages = differences[:]
    del differences[: len(messages)]
    if messages:
        pytest.fail("\n".join(messages), pytrace=False)
