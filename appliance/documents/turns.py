"""Work of which only so much is done at once, by threads that others need too: few wait for their turn, and not for ever."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.core.errors import Overloaded
from appliance.core.sentences import Sentence


class Turns:
    """`at_once` do the work and `waiting` more wait, each at most `seconds`; everybody else is told to come again."""

    def __init__(self, what: str, at_once: int, waiting: int, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._working = threading.BoundedSemaphore(at_once)
        self._admitted = threading.BoundedSemaphore(at_once + waiting)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """One's turn, until the block ends; Overloaded when there is none to be had."""
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
            Sentence("too many wait for %(what)s; try again in a moment", what=self._what), headers={"Retry-After": "5"}
        )
