"""Statements of a write on a server that wait for the next one, because each would cost a round trip of its own."""

import itertools
import threading
from typing import Any

MOST_CHANGES = 32


class Unsent(threading.local):
    """What this thread's transaction sends with its next statement: its begin, savepoints, and changes without an answer."""

    def __init__(self) -> None:
        self._names = itertools.count(1)
        self._statements: list[tuple[str, tuple[Any, ...] | None]] = []  # Only changes have parameters, even if none.
        self.changes = 0

    def begin(self, statement: str) -> None:
        """Add the statement that begins the transaction."""
        self._statements.append((statement, None))

    def add(self, statement: str, params: tuple[Any, ...]) -> None:
        """Add a change."""
        self._statements.append((statement, params))
        self.changes += 1

    def set(self) -> str:
        """Set a savepoint, and return its name."""
        name = f"sp_{next(self._names)}"
        self._statements.append((f"SAVEPOINT {name}", None))
        return name

    def release(self, name: str) -> None:
        """Release a savepoint; one that has not been sent is not needed any more."""
        begin = (f"SAVEPOINT {name}", None)
        if begin in self._statements:
            self._statements.remove(begin)
        else:
            self._statements.append((f"RELEASE SAVEPOINT {name}", None))

    def undo(self, name: str) -> str | None:
        """The statement that rolls back to the savepoint; None when nothing was sent since."""
        begin = (f"SAVEPOINT {name}", None)
        if begin not in self._statements:
            self.forget()  # Later savepoints are nested in this one and end with it.
            return f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}"
        del self._statements[self._statements.index(begin) :]
        self.changes = sum(params is not None for _, params in self._statements)
        return None

    def text(self) -> str:
        """The statements to send before the next one, each with a semicolon."""
        return "".join(f"{statement}; " for statement, _ in self._statements)

    def params(self) -> tuple[Any, ...]:
        """The parameters of the statements."""
        return tuple(value for _, params in self._statements for value in params or ()) if self.changes else ()

    def forget(self) -> None:
        """Discard the statements, because they have been sent or the transaction has ended."""
        self._statements.clear()
        self.changes = 0
