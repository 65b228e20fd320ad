"""Admission of requests: so many are worked on at once, and no tenant and no client takes all of it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.core.errors import Overloaded
from appliance.monitor import REFUSALS

OPEN_PER_PLACE = 4  # each holds memory, worked on or not
SHARED_FROM = 16  # fewer places than this are not worth sharing out


@dataclass(frozen=True)
class Origin:
    """Whom a request counts for: the tenant of its host (empty on the base host), and the network of its client."""

    tenant: str
    network: str


class FairShare:
    """`most` at once.  The last quarter is left to tenants that hold less than an eighth, and one network takes nine sixteenths
    at most, so that whoever floods always leaves room for others.

    Used on the event loop only; what is counted is bounded by `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._tenants: Counter[str] = Counter()
        self._networks: Counter[str] = Counter()
        self._few_of_tenant, self._few_of_network = max(1, most // 8), max(1, most // 32)
        self._of_tenant = most * 3 // 4 if most >= SHARED_FROM else most
        self._of_network = self._of_tenant * 3 // 4 if most >= SHARED_FROM else most

    def has_room(self, origin: Origin) -> bool:
        """Whether one more of this origin fits."""
        if self.total >= self.most:
            return False
        tenant, network = self._tenants[origin.tenant], self._networks[origin.network]
        if tenant >= self._few_of_tenant and self.total >= self._of_tenant:
            return False
        return network < self._few_of_network or network < self._of_network

    def add(self, origin: Origin) -> None:
        """Count one more, whether there is room or not."""
        self.total += 1
        self._tenants[origin.tenant] += 1
        self._networks[origin.network] += 1

    def remove(self, origin: Origin) -> None:
        """Count one less."""
        self.total -= 1
        for counter, name in ((self._tenants, origin.tenant), (self._networks, origin.network)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]


class Places:
    """How many requests are worked on, and how many are open at all: one that waits for its client is open only."""

    def __init__(self, most: int) -> None:
        self.working = FairShare(most)
        self.open = FairShare(most * OPEN_PER_PLACE)


def _nothing() -> None:
    """A request that is no stream has nothing else to give back."""


class Place:
    """The place of one request, within `taken`."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._origin: Origin | None = None
        self._waits = 0
        self._release: Callable[[], None] = _nothing

    @contextmanager
    def taken(self, origin: Origin) -> Iterator[None]:
        """Overloaded when there is none for this origin."""
        places = self._places
        if not places.working.has_room(origin) or not places.open.has_room(origin):
            REFUSALS.inc(1, "requests")
            raise Overloaded("the appliance is busy; try again in a moment", headers={"Retry-After": "1"})
        self._origin = origin
        places.open.add(origin)
        places.working.add(origin)
        try:
            yield
        finally:
            self._leave()
            self._release()

    def _leave(self) -> None:
        origin, self._origin = self._origin, None
        if origin is not None:
            self._places.open.remove(origin)
            if not self._waits:
                self._places.working.remove(origin)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While the client is waited for, or something that is no work of ours: that keeps nobody else out."""
        self._waits += 1
        if self._origin is not None and self._waits == 1:
            self._places.working.remove(self._origin)
        try:
            yield
        finally:
            self._waits -= 1
            if self._origin is not None and not self._waits:
                self._places.working.add(self._origin)

    def become_stream(self, release: Callable[[], None]) -> None:
        """Give the place back: the answer is a stream, which has a limit of its own.  `release` is called at its end."""
        self._leave()
        self._release = release
