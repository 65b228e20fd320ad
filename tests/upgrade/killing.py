"""An upgrade in a process of its own, which dies at a chosen statement."""

import os
import signal
from collections.abc import Callable
from typing import Any

from appliance import migrations
from appliance.core.database import db
from appliance.core.database.sqlite import Sqlite

BEFORE, SENT = "before", "sent"
"""Dies before it executes the statement; after it has sent it to the server, without waiting for what becomes of it."""


def upgrade_until(url: str, number: int, moment: str) -> int:
    """Upgrade the database; die by SIGKILL at the statement of this number, counted from 0, reads not counted."""
    left = number

    def is_last(sql: str) -> bool:
        nonlocal left
        if sql.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            return False
        left -= 1
        return left < 0

    if url.startswith("sqlite"):
        watch_sqlite(is_last)
    else:
        watch_server(is_last, moment)
    db.open_database(url)
    migrations.migrate()
    db.close_database()
    return 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch_sqlite(is_last: Callable[[str], bool]) -> None:
    """Die before the statement of any SQLite database that is the last."""
    execute = Sqlite._execute_cursor

    def watched(self: Sqlite, sql: str, params: Any, **options: Any) -> Any:
        if is_last(sql):
            _die()
        return execute(self, sql, params, **options)

    Sqlite._execute_cursor = watched  # type: ignore[method-assign]


def watch_server(is_last: Callable[[str], bool], moment: str) -> None:
    """Die before the statement to a server that is the last, or once it is sent."""
    import psycopg

    execute = psycopg.Cursor.execute

    def watched(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        if is_last(str(query)):
            if moment == SENT:
                self.connection.pgconn.send_query(self.mogrify(query, params).encode())
                while self.connection.pgconn.flush():
                    continue
            _die()
        return execute(self, query, params, **options)

    psycopg.Cursor.execute = watched  # type: ignore[method-assign]
