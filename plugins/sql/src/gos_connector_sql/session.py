"""A session with a server and the sessions that a connector keeps open between calls."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from appliance.connectors.contract import Context
from gos_connector_sql.statement import Statement

IDLE_SECONDS = 60.0
MOST_IDLE = 4


@dataclass(frozen=True)
class Rows:
    """What a statement gave: rows as objects by column, and how many it changed."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    affected: int = 0


class Session(Protocol):
    """One connection.  Every verb raises errors of the contract; after a TransientError it is not used again."""

    def begin(self, ctx: Context, *, read_only: bool) -> None:
        """Begin a transaction that ends, whatever happens, with the call's deadline."""

    def read(self, statement: Statement, limit: int) -> Rows:
        """The first `limit` rows of a SELECT, the others left at the server."""

    def run(self, statement: Statement) -> Rows:
        """Run any one statement."""

    def commit(self) -> None:
        """Make it true; a lost connection leaves the outcome unknown."""

    def rollback(self) -> None:
        """Undo what was begun."""

    def close(self) -> None:
        """Hang up; never raises."""


class Sessions:
    """Open sessions of one connector: each is used by one call at a time, and closed when it is idle for a minute."""

    def __init__(self, connect: Callable[[Context], Session], most_idle: int = MOST_IDLE) -> None:
        self._connect = connect
        self._most_idle = most_idle
        self._idle: list[tuple[float, Session]] = []
        self._lock = threading.Lock()

    @contextmanager
    def one(self, ctx: Context) -> Iterator[Session]:
        """A session; after any failure it is closed, for nobody knows its state."""
        session = self._take() or self._connect(ctx)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        with self._lock:
            if len(self._idle) < self._most_idle:
                self._idle.append((time.monotonic(), session))
                return
        session.close()

    def close(self) -> None:
        """Close the idle ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, session in idle:
            session.close()

    def _take(self) -> Session | None:
        """The one used last, if it is fresh; the others that have aged are closed."""
        before = time.monotonic() - IDLE_SECONDS
        with self._lock:
            stale = [session for since, session in self._idle if since < before]
            self._idle = [(since, session) for since, session in self._idle if since >= before]
            found = self._idle.pop()[1] if self._idle else None
        for session in stale:
            session.close()
        return found
