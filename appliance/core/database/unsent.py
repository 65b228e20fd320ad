"""Statements of a write on a server that wait for the next one, because each would cost a round trip of its own."""

import itertools
import threading
from typing import Any

MOST_CHANGES = 32
Query = tuple[str, tuple[Any, ...]]
Rows = list[tuple[Any, ...]]


class Unsent(threading.local):
    """What this thread's transaction sends with its next statement: its begin, savepoints, changes
    without an answer, and queries whose rows are used later."""

    def __init__(self) -> None:
        self._names = itertools.count(1)
        self._statements: list[tuple[str, tuple[Any, ...] | None]] = []  # Only changes have parameters, even if none.
        self._queries: list[Query] = []
        self._rows: dict[Query, Rows] = {}
        self.changes = 0

    def begin(self, *statements: str) -> None:
        """Add the statements that begin the transaction."""
        self.forget_queries()
        self._statements += [(statement, None) for statement in statements]

    def look_ahead(self, query: Query) -> None:
        """Add a query, whose rows are kept until they are used, or a savepoint is set or ends."""
        self._queries.append(query)

    def use_rows(self, query: Query) -> Rows | None:
        """The rows of a query that was sent ahead, once; None if it was not."""
        return self._rows.pop(query, None) if self._rows else None

    def forget_queries(self) -> None:
        """Discard the queries and their rows."""
        self._queries.clear()
        self._rows.clear()

    def add(self, statement: str, params: tuple[Any, ...]) -> None:
        """Add a change."""
        self._statements.append((statement, params))
        self.changes += 1

    def set(self) -> str:
        """Set a savepoint, and return its name."""
        self.forget_queries()
        name = f"sp_{next(self._names)}"
        self._statements.append((f"SAVEPOINT {name}", None))
        return name

    def release(self, name: str) -> None:
        """Release a savepoint; one that has not been sent is not needed any more."""
        self.forget_queries()
        begin = (f"SAVEPOINT {name}", None)
        if begin in self._statements:
            self._statements.remove(begin)
        else:
            self._statements.append((f"RELEASE SAVEPOINT {name}", None))

    def undo(self, name: str) -> str | None:
        """The statement that rolls back to the savepoint; None when nothing was sent since."""
        self.forget_queries()
        begin = (f"SAVEPOINT {name}", None)
        if begin not in self._statements:
            self.forget()  # Later savepoints are nested in this one and end with it.
            return f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}"
        del self._statements[self._statements.index(begin) :]
        self.changes = sum(params is not None for _, params in self._statements)
        return None

    def text(self) -> str:
        """The statements to send before the next one, each with a semicolon."""
        return "".join(f"{statement}; " for statement, _ in (*self._statements, *self._queries))

    def params(self) -> tuple[Any, ...]:
        """The parameters of the statements."""
        return tuple(value for _, params in (*self._statements, *self._queries) for value in params or ())

    def read_results(self, cursor: Any) -> None:
        """Keep the rows of the queries that were sent before the statement of this cursor, and move it to the statement's own."""
        for _ in self._statements:
            cursor.nextset()
        for query in self._queries:
            self._rows[query] = cursor.fetchall()
            cursor.nextset()
        self.forget()

    def forget(self) -> None:
        """Discard the statements and queries, because they have been sent or the transaction has ended."""
        self._statements.clear()
        self._queries.clear()
        self.changes = 0
