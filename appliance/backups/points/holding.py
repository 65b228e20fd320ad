"""Holds the write-ahead log of the database, so that SQLite begins it again only after everything in it was read.

SQLite writes over the log once all of it is in the database and no reader needs it.  Here a read transaction is always open, and
the next one is opened before it ends.  While it reads from the log, the log is not begun again; and if it found everything in the
database already, nothing that is written after it gets from the log into the database.  Either way no frame is lost that was
written since it began, whichever process writes.  It locks nobody out: writers append, and readers read.

The writer of the appliance leaves the checkpoints to this module meanwhile.
"""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from appliance.core.database import db

_BUSY_SECONDS = 5
_AUTOMATIC = 1000  # SQLite's default: the frames after which a commit makes a checkpoint


class LogHold:
    """One hold of the log, from its creation to `close`; `reader` reads the database as of the last `renew` or later."""

    def __init__(self, database: Path) -> None:
        self._database = database
        with ExitStack() as opened:
            self._connections = [opened.enter_context(closing(self.connect())) for _ in range(2)]
            self._maintenance = opened.enter_context(closing(self.connect()))
            self._lock = opened.enter_context(closing(self.connect()))
            self._lock.execute("PRAGMA busy_timeout=0")
            _begin(self._connections[0])
            db.write(lambda: db.execute("PRAGMA wal_autocheckpoint=0"))
            opened.pop_all()

    def connect(self) -> sqlite3.Connection:
        """Another connection to the database."""
        connection = sqlite3.connect(self._database, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA trusted_schema=0")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        return connection

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection outside of the held transaction, which reads what is committed now."""
        return self._maintenance

    def begin_copy(self) -> sqlite3.Connection:
        """A connection that reads the database as it is now, until it is closed."""
        connection = self.connect()
        _begin(connection)
        return connection

    def renew(self) -> None:
        """Hold what is committed from now on; what was committed before the last `renew` must have been read."""
        current, free = self._connections
        _begin(free)
        current.execute("COMMIT")
        self._connections = [free, current]

    def checkpoint(self) -> bool:
        """Bring into the database what no reader needs from the log; whether that is all of it."""
        is_busy, frames, done = self._maintenance.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return not is_busy and frames == done

    def restart(self, read_rest: Callable[[], bool]) -> None:
        """Let the log begin again at the next commit, once `read_rest` has read its end, while the writer waits.

        Does nothing if `read_rest` answers False, another process writes, or a reader needs the log: then again later.
        """
        db.write(lambda: db.after_commit(lambda: self._restart(read_rest)))

    def _restart(self, read_rest: Callable[[], bool]) -> None:
        try:
            self._lock.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:  # another process writes
            return
        try:
            if read_rest():
                self.renew()
                if self.checkpoint():
                    self.renew()
        finally:
            self._lock.execute("ROLLBACK")

    def close(self) -> None:
        """Hold the log no longer, and have the writer make checkpoints again."""
        for each in (*self._connections, self._maintenance, self._lock):
            each.close()
        db.write(lambda: db.execute(f"PRAGMA wal_autocheckpoint={_AUTOMATIC}"))


def _begin(connection: sqlite3.Connection) -> None:
    """Begin to read: the transaction begins with its first statement."""
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
