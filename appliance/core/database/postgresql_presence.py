"""Presence of processes on a PostgreSQL server, by locks that end with their sessions."""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from appliance.core import clock, ids

from .advisory_locks import SERVING_LOCK, lock_in, lock_number, signed
from .presence import Presence

if TYPE_CHECKING:
    from .postgresql import Postgresql


class LockPresence(Presence):
    """Presence across machines: an advisory lock that the server releases when the session of its process ends."""

    def __init__(self, database: "Postgresql") -> None:
        self.instance = ids.new("wrk")
        self._database = database
        self._serving_lock = lock_in(database.space, SERVING_LOCK)
        self._mutex = threading.Lock()
        self._connection: Any = None
        self._closed = self._is_serving = False
        self._checked_at = 0.0
        self.renew()

    def is_alive(self, owner: str) -> bool:
        """Whether the process with the instance id `owner` holds its lock, on any machine."""
        if clock.monotonic() - self._checked_at > 1:
            self.renew()
        if owner == self.instance:
            return True
        return self._count_holders(lock_number(owner)) > 0

    def _count_holders(self, number: int) -> int:
        high, low = divmod(number, 1 << 32)
        cursor = self._database.execute_sql(
            "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND classid::bigint = %s "
            "AND objid::bigint = %s AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (high, low),
        )
        return int(cursor.fetchone()[0])

    def start_serving(self) -> None:
        """See Presence."""
        with self._mutex:
            self._is_serving = True
            if self._connection is not None:
                with suppress(psycopg.OperationalError):  # renewed together with the connection
                    self._connection.execute(self._share_lock("lock"))
        self.renew()

    def stop_serving(self) -> None:
        """See Presence."""
        with self._mutex:
            self._is_serving = False
            if self._connection is not None:
                with suppress(psycopg.OperationalError):  # the server releases the lock of a lost connection itself
                    self._connection.execute(self._share_lock("unlock"))

    def count_serving(self) -> int:
        """How many processes hold the lock of those that serve requests, on any machine."""
        self.renew()
        return self._count_holders(self._serving_lock)

    def sweep(self) -> list[str]:
        """Nothing to remove: the locks of dead processes do not remain."""
        return []

    def close(self) -> None:
        """Release the lock; other processes can reclaim what this process still owns."""
        with self._mutex:
            self._closed = True
            if self._connection is None:
                return
            with suppress(psycopg.OperationalError):  # the server releases the lock of a lost connection itself
                self._connection.execute(self._lock("unlock"))  # now; the server may end the session a little later
            self._connection.close()

    def _lock(self, verb: str) -> str:
        return f"SELECT pg_advisory_{verb}({signed(lock_number(self.instance))})"

    def _share_lock(self, verb: str) -> str:
        return f"SELECT pg_advisory_{verb}_shared({signed(self._serving_lock)})"

    def renew(self) -> None:
        """Check that the lock is still held, and take it again if the connection was lost."""
        with self._mutex:
            if self._closed:
                return
            try:
                if self._connection is not None:
                    self._connection.execute("SELECT 1")
            except psycopg.OperationalError:
                self._connection = None
            if self._connection is None:
                self._connection = self._database.open_connection()
                self._connection.execute(self._lock("lock"))
                if self._is_serving:
                    self._connection.execute(self._share_lock("lock"))
            self._checked_at = clock.monotonic()


def has_other_locks(database: "Postgresql") -> bool:
    """Whether a session of another process holds an advisory lock in this database: each process of an appliance holds one."""
    cursor = database.execute_sql(
        "SELECT COUNT(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted "
        "AND l.pid <> pg_backend_pid() AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return bool(cursor.fetchone()[0])
