"""Runs two writing functions side by side, the second one in the middle of the first: before each of its statements in turn.

Each function is called in a thread of its own, and writes through the writers of an open PostgreSQL database.  The first one is
halted before one of its writes, or before one of the statements of a shared write; with `reads` also before one of its reads.
Then the second one runs until it ends or waits for the first; then both run to their ends.  Nothing can come between the
statements of an exclusive write: once it has become a shared one, it is halted before each of them, too.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import peewee
import psycopg
import pytest

from appliance.core.database import db, postgresql
from appliance.core.database.writers import Job, Writers
from appliance.core.errors import ApplianceError

MOST_STATEMENTS = 200
AT_END = "its end"  # Halted there, one function has followed the other.
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

    def __init__(self, number: int, *, reads: bool = False) -> None:
        self._number = number
        self._reads = reads
        self._count = 0
        self._caller = threading.local()
        self._writer = threading.local()
        self._jobs: dict[int, tuple[Job, str]] = {}
        self.halted: threading.Event = threading.Event()
        self.go_on = threading.Event()
        self.statement = AT_END

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
            if name == "first":
                self._halt("a write")

    def begin(self, batch: Sequence[Job]) -> None:
        self._writer.name = self._jobs.get(id(batch[0]), (None, ""))[1] if batch[0].is_shared else ""

    def before(self, statement: str) -> None:
        if getattr(self._writer, "name", "") == "first":
            self._halt(statement)

    def before_read(self, statement: str) -> None:
        if self._reads and getattr(self._caller, "name", "") == "first":
            self._halt(statement)

    def _halt(self, statement: str) -> None:
        if self._count == self._number and not self.halted.is_set():
            self.statement = statement
            self.halted.set()
            if not self.go_on.wait(_SECONDS):
                raise TimeoutError("nobody let the first function go on")
        self._count += 1


@contextmanager
def _gated(gate: _Gate) -> Iterator[None]:
    submit, transact = Writers.submit, Writers._transact
    execute, execute_any = db.database.obj._execute_on_own, db.database.obj._execute_cursor

    def gated_submit(self: Writers, job: Job) -> None:
        gate.submit(job)
        submit(self, job)

    def gated_transact(self: Writers, batch: list[Job]) -> None:
        gate.begin(batch)
        transact(self, batch)

    def gated_execute(sql: str, params: Any, **options: Any) -> Any:
        gate.before(sql)
        return execute(sql, params, **options)

    def gated_read(sql: str, params: Any, **options: Any) -> Any:
        gate.before_read(sql)
        return execute_any(sql, params, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writers, "submit", gated_submit)
        patch.setattr(Writers, "_transact", gated_transact)
        patch.setattr(db.database.obj, "_execute_on_own", gated_execute)
        patch.setattr(db.database.obj, "_execute_cursor", gated_read)
        patch.setattr(postgresql, "MOST_CHANGES", 1)  # so that the second can also come between changes that are sent together
        yield


@contextmanager
def without_exclusive_writes() -> Iterator[None]:
    """Inside the block, every write is a shared one, as if the lock of the exclusive ones had been taken out."""
    submit = Writers.submit

    def submit_shared(self: Writers, job: Job) -> None:
        job.is_shared = True
        submit(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writers, "submit", submit_shared)
        patch.setattr(Job, "require_exclusive", lambda _: None)
        yield


@dataclass(frozen=True)
class Pair:
    """Two functions on something new, which must end as if one had followed the other.

    `read` returns what is compared then: the state of the something, without ids and times; it asserts what must hold whatever
    came first, as a fault that shows in both orders is not found by comparing.  `may_refuse` are errors with which
    one of them may end although it would not have done so alone, provided that it then has changed nothing.
    """

    first: Step
    second: Step
    read: Step = lambda: None
    may_refuse: tuple[str, ...] = ()

    @classmethod
    def of(cls, functions: Iterable[Step], read: Step = lambda: None, may_refuse: tuple[str, ...] = ()) -> "Pair":
        first, second = functions
        return cls(first, second, read, may_refuse)


def check_pair(begin: Callable[[], Pair], *, reads: bool = False) -> int:
    """Run the functions of a pair one after the other in both orders, then in every interleaving: each must end like one of those.

    `begin` makes the pair anew each time.  Returns the number of interleavings.
    """
    pairs: list[Pair] = []
    ends: list[tuple[str, Any]] = []

    def begin_both() -> tuple[Step, Step]:
        pairs[:] = [begin()]
        return pairs[0].first, pairs[0].second

    count = interleave(begin_both, lambda end: ends.append((end.halted, (_errors_of(end.results), pairs[0].read()))), reads=reads)
    allowed = [end for halted, end in ends if halted == AT_END] + _list_refusals(begin)
    for halted, end in ends:
        assert end in allowed, f"a function was halted before {halted!r}: they end with {end}, in turn with one of {allowed}"
    return count


def _list_refusals(begin: Callable[[], Pair]) -> list[Any]:
    """The ends of pairs of which one function may refuse what it would have done alone."""
    names = begin().may_refuse
    ends = []
    for order in ((0,), (1,)) if names else ():
        errors, state = _run_in_turn(begin, order)
        ends += [(tuple(error if number in order else name for number, error in enumerate(errors)), state) for name in names]
    return ends


def _run_in_turn(begin: Callable[[], Pair], order: Sequence[int]) -> tuple[tuple[str, ...], Any]:
    pair = begin()
    results: list[Any] = [None, None]
    for number in order:
        try:
            results[number] = (pair.first, pair.second)[number]()
        except ApplianceError as error:
            results[number] = error
    return _errors_of(results), pair.read()


def _errors_of(results: Sequence[Any]) -> tuple[str, ...]:
    """For each result the name of its error, empty if it is none; an error without a code is a fault, but a violated constraint."""
    for each in results:
        if isinstance(each, Exception) and not isinstance(each, ApplianceError | peewee.IntegrityError):
            raise each
    return tuple(type(each).__name__ if isinstance(each, Exception) else "" for each in results)


def interleave(begin: Callable[[], tuple[Step, Step]], judge: Callable[[Ends], None], *, reads: bool = False) -> int:
    """Run both functions in every interleaving and both orders, each time anew from `begin`; `judge` asserts what must hold.

    Returns the number of interleavings.
    """
    with closing(db.database.obj.open_connection()) as watching:
        return _run_all(partial(_run, watching, reads=reads), begin, judge)


def _run_all(run: Callable[..., Ends], begin: Callable[[], tuple[Step, Step]], judge: Callable[[Ends], None]) -> int:
    count = 0
    for is_swapped in (False, True):
        for number in range(MOST_STATEMENTS):
            functions = begin()
            ends = run(functions[::-1] if is_swapped else functions, number)
            results = ends.results[::-1] if is_swapped else ends.results
            count += 1
            try:
                judge(Ends((results[0], results[1]), ends.halted))
            except AssertionError as error:
                halted = f"the {'second' if is_swapped else 'first'} function was halted before {ends.halted!r}"
                raise AssertionError(f"{halted}; results {results!r}: {error}") from error
            if ends.halted == AT_END:
                break
        else:
            raise AssertionError(f"a function has more than {MOST_STATEMENTS} statements")
    return count


def _run(watching: psycopg.Connection, functions: Sequence[Step], number: int, *, reads: bool) -> Ends:
    gate = _Gate(number, reads=reads)
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
