"""Places for requests: so many are worked on at once, and those that wait for their client take none meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.core.errors import Overloaded

OPEN_PER_PLACE = 4  # each holds memory, worked on or not


class Places:
    """How many there are, and how many are taken."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.working = 0
        self.open = 0


class Place:
    """The place of one request, within a `with`; Overloaded when there is none."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._held = False
        self._waits = 0

    def __enter__(self) -> None:
        places = self._places
        if places.working >= places.most or places.open >= places.most * OPEN_PER_PLACE:
            raise Overloaded("the appliance is busy; try again in a moment", headers={"Retry-After": "1"})
        self._held = True
        places.open += 1
        places.working += 1

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._places.open -= 1
        self._places.working -= 0 if self._waits else 1

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While the client is waited for: one that is slow, or a body and an answer at once, keeps nobody else out."""
        self._waits += 1
        if self._held and self._waits == 1:
            self._places.working -= 1
        try:
            yield
        finally:
            self._waits -= 1
            if self._held and not self._waits:
                self._places.working += 1
