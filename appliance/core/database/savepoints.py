"""Savepoints on a server, whose statements would each cost a round trip."""

import itertools
import threading


class Savepoints(threading.local):
    """The savepoints of this thread's transaction; their statements are sent with the next one, to save round trips."""

    def __init__(self) -> None:
        self._names = itertools.count(1)
        self._unsent: list[str] = []

    def begin(self, statement: str) -> None:
        """Send this statement, which begins the transaction or takes a lock of it, with the next one."""
        self._unsent.append(statement)

    def set(self) -> str:
        """Set a savepoint, and return its name."""
        name = f"sp_{next(self._names)}"
        self._unsent.append(f"SAVEPOINT {name}")
        return name

    def release(self, name: str) -> None:
        if not self._drop(name):
            self._unsent.append(f"RELEASE SAVEPOINT {name}")

    def undo(self, name: str) -> str | None:
        """The statement that rolls back to the savepoint; None when nothing was sent since."""
        if self._drop(name):
            return None
        self._unsent.clear()  # Later savepoints are nested in this one and end with it.
        return f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}"

    def _drop(self, name: str) -> bool:
        """Discard a savepoint that has not been sent, with those nested in it; returns whether that was the case."""
        begin = f"SAVEPOINT {name}"
        if begin not in self._unsent:
            return False
        del self._unsent[self._unsent.index(begin) :]
        return True

    def unsent(self) -> str:
        """The statements to send before the next one, each with a semicolon."""
        return "".join(f"{each}; " for each in self._unsent)

    def forget(self) -> None:
        """Discard the unsent statements, because they have been sent or the transaction has ended."""
        self._unsent.clear()
