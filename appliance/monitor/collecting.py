"""Collects records in memory, to be stored together in one write.  A killed process loses what it has collected."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from appliance.core.database import db

T = TypeVar("T")
MAX_QUEUED = 20_000


class Collected(Generic[T]):
    """Records that wait for `flush`; beyond MAX_QUEUED further ones are left out.  `store` stores them inside a write."""

    def __init__(self, store: Callable[[list[T]], None]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiting: list[T] = []

    def put(self, record: T) -> None:
        """Add a record; does not block."""
        if len(self._waiting) < MAX_QUEUED:
            with self._lock:
                self._waiting.append(record)

    def has_requests(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Store the collected records; if that fails, they are kept for the next flush."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if waiting:
            try:
                db.write(partial(self._store, waiting), is_shared=True)
            except BaseException:
                with self._lock:
                    self._waiting = waiting + self._waiting
                raise
