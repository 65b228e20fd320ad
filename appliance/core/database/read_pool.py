"""The bounded pool of read connections to a server."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from psycopg.pq import TransactionStatus

from appliance.core import clock
from appliance.core.errors import Overloaded

MAX_READERS = 16
WAIT_SECONDS = 20.0


class ReadPool:
    """A pool of at most `MAX_READERS` read-only connections, each used for one statement or snapshot; fewer if the server has
    no more."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._is_shut = False
        self._idle: deque[Any] = deque()
        self._in_use = 0
        self._free = threading.Condition()

    def acquire(self) -> Any:
        """Take a connection; Overloaded if none is free within `WAIT_SECONDS`, or the pool is empty and the server refuses one."""
        deadline = clock.monotonic() + WAIT_SECONDS
        limit = MAX_READERS
        while True:
            with self._free:
                if not self._free.wait_for(lambda: self._in_use < limit, max(0.0, deadline - clock.monotonic())):  # noqa: B023
                    raise Overloaded("every connection to the database is in use; try again in a moment")
                self._in_use += 1
                with suppress(IndexError):
                    return self._idle.pop()
            try:
                return self._connect()
            except BaseException as error:
                with self._free:
                    self._in_use -= 1
                    limit = self._in_use
                    self._free.notify()
                if not isinstance(error, Overloaded) or limit == 0:
                    raise

    def release(self, connection: Any) -> None:
        if connection.closed:
            self.close_idle()  # The server was probably restarted, which closes the other connections too.
        elif connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
            if self._is_shut:
                self.close_idle()
        else:
            connection.close()
        with self._free:
            self._in_use -= 1
            self._free.notify()

    def shut(self) -> None:
        """Close the idle connections, and all others when they are returned."""
        self._is_shut = True
        self.close_idle()

    def close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()
