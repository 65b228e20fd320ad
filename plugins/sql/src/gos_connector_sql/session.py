"""Sessions with a database, and the pool of sessions a connector keeps open between calls."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from appliance.connectors.contract import Context
from gos_connector_sql.statement import Statement

IDLE_SECONDS = 60.0
MAX_IDLE = 4


@dataclass(frozen=True)
class Rows:
    """The result of a statement: rows as dicts by column name, and the number of changed rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    affected: int = 0


class Session(Protocol):
    """One connection. Every method raises errors of the connector contract; after a TransientError it is not used again."""

    def begin(self, ctx: Context, *, read_only: bool) -> None:
        """Begin a transaction whose statements end at the call's deadline."""

    def read(self, statement: Statement, limit: int) -> Rows:
        """The first `limit` rows of a SELECT; further rows are not fetched."""

    def run(self, statement: Statement) -> Rows:
        """Run a single statement of any kind."""

    def commit(self) -> None:
        """Commit the transaction; if the connection is lost meanwhile, the outcome is unknown."""

    def rollback(self) -> None:
        """Roll back the transaction."""

    def close(self) -> None:
        """Close the connection; never raises."""


class Sessions:
    """A pool of open sessions of one connector: each serves one call at a time and is closed after a minute of idling."""

    def __init__(self, connect: Callable[[Context], Session], max_idle: int = MAX_IDLE) -> None:
        self._connect = connect
        self._max_idle = max_idle
        self._idle: list[tuple[float, Session]] = []
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, ctx: Context) -> Iterator[Session]:
        """A session from the pool or a new one; it is closed after any failure, because its state is unknown."""
        session = self._pop_idle() or self._connect(ctx)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        with self._lock:
            if len(self._idle) < self._max_idle:
                self._idle.append((time.monotonic(), session))
                return
        session.close()

    def close(self) -> None:
        """Close the idle sessions."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, session in idle:
            session.close()

    def _pop_idle(self) -> Session | None:
        """The most recently used idle session, or None; closes those idle for longer than a minute."""
        oldest_allowed = time.monotonic() - IDLE_SECONDS
        with self._lock:
            stale = [session for since, session in self._idle if since < oldest_allowed]
            self._idle = [(since, session) for since, session in self._idle if since >= oldest_allowed]
            newest = self._idle.pop()[1] if self._idle else None
        for session in stale:
            session.close()
        return newest
