"""Notices on PostgreSQL: one thread with one connection sends and receives those of a process, by NOTIFY and LISTEN.

Notices are sent after the commit, by a transaction of their own, all that wait together. As part of the write itself NOTIFY would
be certain, but would hold a lock of the whole database during the commit, so that writers could not commit side by side.
"""

import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol

import psycopg

from appliance.core import clock
from appliance.core.errors import Overloaded

log = logging.getLogger(__name__)
CHANNEL = "gos"
RETRY_SECONDS = 0.5
STOP_SECONDS = 5.0
CHECK_SECONDS = 10.0  # between two looks whether a silent connection still works
MAX_WAITING = 10_000  # notices that wait for a connection; more are dropped, as if they were lost
MAX_BATCH = 1_000

# A commit of notices needs no wait for the disk: they do not outlive a crash of the server anyway.
_LISTEN = "SET synchronous_commit = off; LISTEN {channel}"
_SEND = "SELECT pg_notify(%s, notice) FROM unnest(%s::text[]) AS notice"


class Connector(Protocol):
    """Opens connections outside the pool; `space` separates a database that is thrown away, see `advisory_locks.space_of`."""

    @property
    def space(self) -> str: ...

    def open_connection(self) -> Any:
        """A new connection, which the caller must close; Overloaded if the server does not respond."""


class NoticeThread(threading.Thread):
    """Calls `receive` with each notice of another process, and `lose` when some may have been lost: after each connect and, while
    there is no connection, twice a second."""

    def __init__(self, server: Connector, receive: Callable[[str], None], lose: Callable[[], None]) -> None:
        super().__init__(name="notices", daemon=True)
        self._server = server
        self._channel = server.space or CHANNEL
        self._receive_notice, self._lose = receive, lose
        self._waiting: dict[str, None] = {}
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_stopped = self._is_closed = False
        self._is_lost = False

    def send(self, notice: str) -> None:
        """Have the notice sent; equal ones that wait count as one."""
        with self._lock:
            if self._is_closed:
                return
            if not self._waiting:
                os.eventfd_write(self._wake, 1)
            if len(self._waiting) < MAX_WAITING:
                self._waiting[notice] = None

    def stop(self) -> None:
        """Send what waits, close the connection and end the thread; one that waits for a server that is gone ends with the
        process."""
        self._is_stopped = True
        os.eventfd_write(self._wake, 1)
        self.join(STOP_SECONDS)
        if not self.is_alive():
            with self._lock:  # its number may be that of another file from now on
                self._is_closed = True
                os.close(self._wake)

    def run(self) -> None:
        while not self._is_stopped:
            try:
                with closing(self._server.open_connection()) as connection:
                    connection.execute(_LISTEN.format(channel=self._channel))
                    self._report_connected()
                    self._exchange(connection)
            except (psycopg.Error, Overloaded) as error:
                self._report_lost(error)
                self._pause()

    def _report_connected(self) -> None:
        if self._is_lost:
            log.warning("the connection for notices is open again")
        self._is_lost = False
        self._lose()

    def _report_lost(self, error: Exception) -> None:
        if not self._is_lost:
            log.warning("the connection for notices was lost (%s); until it is open again, this process polls", error)
        self._is_lost = True
        self._lose()

    def _pause(self) -> None:
        """Wait before the next attempt to connect, whatever has to be sent; at most until `stop`."""
        ends = clock.monotonic() + RETRY_SECONDS
        while not self._is_stopped and (left := ends - clock.monotonic()) > 0:
            self._wait(left)

    def _exchange(self, connection: Any) -> None:
        """Send and receive until `stop`."""
        checked_at = clock.monotonic()
        while True:
            is_stopped = self._is_stopped  # read before the notices: those sent before `stop` are sent
            if batch := self._take():
                connection.execute(_SEND, (self._channel, batch))
            elif is_stopped:
                return
            elif clock.monotonic() - checked_at > CHECK_SECONDS:
                connection.execute("SELECT 1")
                checked_at = clock.monotonic()
            own = connection.info.backend_pid
            for notice in connection.notifies(timeout=0):
                if notice.pid != own:  # this process has told its own subscribers
                    self._receive_notice(notice.payload)
            if not batch:
                self._wait(CHECK_SECONDS, connection.fileno())

    def _wait(self, seconds: float, *descriptors: int) -> None:
        """Wait until there is something to send, to receive or to stop."""
        poll = select.poll()
        for descriptor in (self._wake, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(seconds * 1000)
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return  # nothing woke it

    def _take(self) -> list[str]:
        with self._lock:
            batch = list(self._waiting)[:MAX_BATCH]
            for notice in batch:
                del self._waiting[notice]
            return batch
