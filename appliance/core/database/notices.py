"""Notices: what a process commits, passed on to those parts of all processes that wait for it, so that they need not poll often.

A notice has a topic and a short payload, such as the id of a row. On PostgreSQL it reaches the other processes within
milliseconds; on SQLite it stays in its process, and the others notice the commit with their next poll. It may get lost, when a
process dies right after its commit or loses its connection: whoever relies on notices must look at the rows, too, every few
seconds (`poll_seconds`), and answer a notice that comes twice or too late by looking at the row.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from . import db

log = logging.getLogger(__name__)
MAX_BYTES = 512  # of a topic and its payload; PostgreSQL allows 8,000

Listener = Callable[[str | None], None]
"""Called with the payload, or with None when notices of the topic may have been lost: then anything may have changed. It is called
by the thread that writes or that receives notices, so it must return soon, and must not use the database."""


class Carrier(Protocol):
    """Carries notices to the other processes."""

    def start(self) -> None:
        """Connect, and stay connected until `stop`."""

    def send(self, notice: str) -> None:
        """Pass a notice on soon."""

    def stop(self) -> None:
        """Pass on what is left, and disconnect."""


class Notices:
    """The notices of this process; thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._lock = threading.Lock()
        self._carrier: Carrier | None = None

    def start(self) -> None:
        """Exchange notices with other processes, if the database can carry them, until `stop`."""
        if not db.is_sqlite():
            from .postgresql_notices import NoticeThread

            self._carrier = NoticeThread(db.database.obj, self._receive, self._lose)
            self._carrier.start()

    def stop(self) -> None:
        """Stop exchanging notices with other processes, and forget all subscribers."""
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.stop()
        with self._lock:
            self._listeners = {}

    def poll_seconds(self, alone: float, carried: float) -> float:
        """How often to look at rows of other processes: `carried` when notices come from there, `alone` when none do."""
        return alone if self._carrier is None else carried

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every notice of the topic from any process; returns a function that ends this."""
        with self._lock:
            self._listeners[topic] = (*self._listeners.get(topic, ()), listener)
        return lambda: self._unsubscribe(topic, listener)

    def _unsubscribe(self, topic: str, listener: Listener) -> None:
        with self._lock:
            self._listeners[topic] = tuple(each for each in self._listeners.get(topic, ()) if each is not listener)

    def notify(self, topic: str, payload: str = "") -> None:
        """Inside a write: notify the subscribers of all processes after its commit; those of this process before it returns."""

        def pass_on() -> None:
            self.notify_here(topic, payload)
            self.notify_others(topic, payload)

        db.after_commit(pass_on)

    def notify_others(self, topic: str, payload: str = "") -> None:
        """After a commit: notify the subscribers of the other processes.  Does nothing on SQLite."""
        if self._carrier is not None:
            notice = f"{topic}:{payload}"
            if len(notice.encode()) > MAX_BYTES:
                raise ValueError(f"a notice of {topic} is longer than {MAX_BYTES} bytes; send the id of a row")
            self._carrier.send(notice)

    def _receive(self, notice: str) -> None:
        topic, _, payload = notice.partition(":")
        self.notify_here(topic, payload)

    def _lose(self) -> None:
        for topic in tuple(self._listeners):
            self.notify_here(topic, None)

    def notify_here(self, topic: str, payload: str | None = "") -> None:
        """Notify the subscribers of this process; None if notices of the topic may have been lost."""
        for listener in self._listeners.get(topic, ()):
            try:
                listener(payload)
            except Exception:
                log.exception("a listener for notices of %s failed", topic)


notices = Notices()
"""The notices of this process."""
