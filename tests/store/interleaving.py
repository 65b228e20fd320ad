"""Runs two writing functions side by side, the second one in the middle of the first: before each of its statements in turn.

Each function is called in a thread of its own, and writes through the writers of an open PostgreSQL database.  The first one is
halted before one of its statements; then the second one runs until it ends or waits for the first; then both run to their ends.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from appliance.core.database import db, postgresql
from appliance.core.database.writers import Job, Writers

MOST_STATEMENTS = 200
WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
)
_SECONDS = 30.0

Step = Callable[[], Any]


@dataclass(frozen=True)
class Ends:
    """What the functions answered or raised, in the order in which they were given, and before which statement one was halted."""

    results: tuple[Any, Any]
    halted: str

    @property
    def values(self) -> list[Any]:
        """The results of those that did not fail."""
        return [each for each in self.results if not isinstance(each, Exception)]

    @property
    def errors(self) -> list[str]:
        """The names of the errors of those that failed."""
        return sorted(type(each).__name__ for each in self.results if isinstance(each, Exception))


class _Gate:
    """Halts the first function before a statement; each statement is one round trip to the database."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._count = 0
        self._caller = threading.local()
        self._writer = threading.local()
        self._jobs: dict[int, tuple[Job, str]] = {}
        self.halted: threading.Event = threading.Event()
        self.go_on = threading.Event()
        self.statement = "its end"

    def call(self, name: str, function: Step) -> Any:
        self._caller.name = name
        try:
            return function()
        except Exception as error:  # noqa: BLE001  an end like any other, for the test to judge
            return error

    def submit(self, job: Job) -> None:
        """A job belongs to the function in whose thread it was submitted."""
        if name := getattr(self._caller, "name", ""):
            self._jobs[id(job)] = (job, name)

    def begin(self, batch: Sequence[Job]) -> None:
        self._writer.name = self._jobs.get(id(batch[0]), (None, ""))[1]

    def before(self, statement: str) -> None:
        if getattr(self._writer, "name", "") != "first":
            return
        if self._count == self._number and not self.halted.is_set():
            self.statement = statement
            self.halted.set()
            if not self.go_on.wait(_SECONDS):
                raise TimeoutError("nobody let the first function go on")
        self._count += 1


@contextmanager
def _gated(gate: _Gate) -> Iterator[None]:
    submit, transact, execute = Writers.submit, Writers._transact, db.database.obj._execute_on_own

    def gated_submit(self: Writers, job: Job) -> None:
        gate.submit(job)
        submit(self, job)

    def gated_transact(self: Writers, batch: list[Job]) -> None:
        gate.begin(batch)
        transact(self, batch)

    def gated_execute(sql: str, params: Any, **options: Any) -> Any:
        gate.before(sql)
        return execute(sql, params, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writers, "submit", gated_submit)
        patch.setattr(Writers, "_transact", gated_transact)
        patch.setattr(db.database.obj, "_execute_on_own", gated_execute)
        patch.setattr(postgresql, "MOST_CHANGES", 1)  # so that the second can also come between changes that are sent together
        yield


def interleave(begin: Callable[[], tuple[Step, Step]], judge: Callable[[Ends], None]) -> int:
    """Run both functions in every interleaving and both orders, each time anew from `begin`; `judge` asserts what must hold.

    Returns the number of interleavings.
    """
    with closing(db.database.obj.open_connection()) as watching:
        return _run_all(watching, begin, judge)


def _run_all(watching: psycopg.Connection, begin: Callable[[], tuple[Step, Step]], judge: Callable[[Ends], None]) -> int:
    count = 0
    for is_swapped in (False, True):
        for number in range(MOST_STATEMENTS):
            functions = begin()
            ends = _run(watching, functions[::-1] if is_swapped else functions, number)
            results = ends.results[::-1] if is_swapped else ends.results
            count += 1
            try:
                judge(Ends((results[0], results[1]), ends.halted))
            except AssertionError as error:
                halted = f"the {'second' if is_swapped else 'first'} function was halted before {ends.halted!r}"
                raise AssertionError(f"{halted}; results {results!r}: {error}") from error
            if ends.halted == _Gate(0).statement:
                break
        else:
            raise AssertionError(f"a function has more than {MOST_STATEMENTS} statements")
    return count


def _run(watching: psycopg.Connection, functions: Sequence[Step], number: int) -> Ends:
    gate = _Gate(number)
    with _gated(gate), ThreadPoolExecutor(2) as threads:
        first = threads.submit(gate.call, "first", functions[0])
        _wait_for(lambda: gate.halted.is_set() or first.done())
        second = threads.submit(gate.call, "second", functions[1])
        try:
            _wait_for(lambda: second.done() or _is_waiting(watching))
        finally:
            gate.go_on.set()
        return Ends((_result(first), _result(second)), gate.statement)


def _is_waiting(watching: psycopg.Connection) -> bool:
    """Whether the second function waits for the first: for one of its locks, or for its turn at the writers."""
    row = watching.execute(WAITING).fetchone()
    return bool(row and row[0]) or db.writer_depth() > 0


def _wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(_SECONDS / 0.002)):
        if condition():
            return
        pause.wait(0.002)
    raise TimeoutError("neither the end of a function nor a lock was seen")


def _result(future: "Future[Any]") -> Any:
    return future.result(_SECONDS)
