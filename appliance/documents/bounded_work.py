"""Limits how much of a kind of work runs at once on shared threads; a few callers wait for a limited time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.core.errors import Overloaded
from appliance.core.sentences import Sentence


class BoundedWork:
    """Lets `at_once` callers work and `waiting` more wait, each at most `seconds`; refuses all others."""

    def __init__(self, what: str, at_once: int, waiting: int, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._working = threading.BoundedSemaphore(at_once)
        self._admitted = threading.BoundedSemaphore(at_once + waiting)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot for the duration of the block; Overloaded when there is none."""
        if not self._admitted.acquire(blocking=False):
            raise self._busy()
        try:
            if not self._working.acquire(timeout=self._seconds):
                raise self._busy()
            try:
                yield
            finally:
                self._working.release()
        finally:
            self._admitted.release()

    def _busy(self) -> Overloaded:
        return Overloaded(
            Sentence("too many requests wait for %(what)s; try again in a moment", what=self._what), headers={"Retry-After": "5"}
        )
