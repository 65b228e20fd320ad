"""Counts the instructions of SQLite's virtual machine, statement by statement: work that is the same on every machine.

What a statement reads in one instruction is not seen, such as a count of a whole table or the entries of a full-text index.
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

INTERVAL = 10  # Instructions between two calls of SQLite's progress handler, which is called between rows only.


class StatementCounts:
    """The instructions of each statement since the last `reset`, by its SQL."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: Counter[str] = Counter()
        self.executed: dict[str, Any] = {}
        """The parameters with which each statement was last executed, by its SQL; `reset` keeps them."""

    def add(self, sql: str) -> None:
        with self._lock:
            self._steps[sql] += INTERVAL

    def reset(self) -> None:
        with self._lock:
            self._steps.clear()

    def total(self) -> int:
        with self._lock:
            return sum(self._steps.values())

    def most_expensive(self, count: int) -> list[tuple[str, int]]:
        with self._lock:
            return self._steps.most_common(count)


class _CountedConnection(sqlite3.Connection):
    """Adds to `counts` while it runs statements; another progress handler is called as well, at its own interval."""

    def __init__(self, *arguments: Any, counts: StatementCounts, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counts, self._sql = counts, ""
        self.set_progress_handler(None, 0)

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        self._sql = sql
        self._counts.executed[sql] = arguments[0] if arguments else ()
        return super().execute(sql, *arguments)

    def set_progress_handler(self, handler: Callable[[], int | None] | None, interval: int) -> None:
        passed = 0

        def progress() -> int | None:
            nonlocal passed
            self._counts.add(self._sql)
            passed += INTERVAL
            if handler is None or passed < interval:
                return 0
            passed = 0
            return handler()

        super().set_progress_handler(progress, INTERVAL)


@contextmanager
def counting() -> Iterator[StatementCounts]:
    """Inside the block, all new connections to SQLite are counted."""
    counts = StatementCounts()
    factory: Any = partial(_CountedConnection, counts=counts)
    with mock.patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=factory)):
        yield counts
