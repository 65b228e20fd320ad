"""Admission of requests: limits how many run at once, and shares them fairly between tenants and networks."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.core.errors import Overloaded
from appliance.monitor import REFUSALS

from .work_queue import Turn, WorkQueue

OPEN_PER_PLACE = 4  # open requests need memory even while they wait
SHARED_FROM = 16  # with fewer slots than this, sharing makes no sense


@dataclass(frozen=True)
class Origin:
    """Whom a request counts for: the tenant of its host (empty on the base host) and the network of its client."""

    tenant: str
    network: str


class FairShare:
    """Limits requests to `most` at once. The last quarter is reserved for tenants that have less than an eighth, and one
    network gets at most nine sixteenths, so that a flood always leaves room for others.

    Used on the event loop only; the counters are bounded by `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._tenants: Counter[str] = Counter()
        self._networks: Counter[str] = Counter()
        self._small_tenant, self._small_network = max(1, most // 8), max(1, most // 32)
        self._tenant_limit = most * 3 // 4 if most >= SHARED_FROM else most
        self._network_limit = self._tenant_limit * 3 // 4 if most >= SHARED_FROM else most

    def has_room(self, origin: Origin) -> bool:
        """Whether one more request of this origin is admitted."""
        if self.total >= self.most:
            return False
        tenant, network = self._tenants[origin.tenant], self._networks[origin.network]
        if tenant >= self._small_tenant and self.total >= self._tenant_limit:
            return False
        return network < self._small_network or network < self._network_limit

    def add(self, origin: Origin) -> None:
        """Count one more request, even beyond the limit."""
        self.total += 1
        self._tenants[origin.tenant] += 1
        self._networks[origin.network] += 1

    def remove(self, origin: Origin) -> None:
        """Count one request less."""
        self.total -= 1
        for counter, name in ((self._tenants, origin.tenant), (self._networks, origin.network)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]


class RequestSlots:
    """Slots for requests being worked on, and for open ones; a request that waits for its client is only open. Of those with a slot
    to be worked on, the ones with a turn of the queue are; the others wait for theirs."""

    def __init__(self, most: int, queue: WorkQueue) -> None:
        self.working = FairShare(most)
        self.open = FairShare(most * OPEN_PER_PLACE)
        self.queue = queue
        self.streams: set[RequestSlot] = set()
        self.has_ended_streams = False

    def end_streams(self) -> None:
        """End the open event streams, and any that is opened from now on. Call on the event loop."""
        self.has_ended_streams = True
        for each in self.streams:
            each.end()


def _nothing() -> None:
    """Nothing to release for a request that is not a stream."""


class RequestSlot:
    """The slot of one request, held within `taken`."""

    def __init__(self, places: RequestSlots) -> None:
        self._places = places
        self._origin: Origin | None = None
        self._turn: Turn | None = None
        self._waits = 0
        self._release: Callable[[], None] = _nothing
        self.ended = asyncio.Event()  # the application is to end the stream

    @contextmanager
    def occupy(self, origin: Origin) -> Iterator[None]:
        """Hold a slot; Overloaded when none is free for this origin."""
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
            self._places.streams.discard(self)
            self._free()
            self._release()

    async def take_turn(self, key: Hashable) -> None:
        """Wait until the request may be worked on; Overloaded if that takes too long. `key` tells clients of a network apart."""
        if self._origin is not None:
            self._turn = await self._places.queue.enter((self._origin.tenant, self._origin.network, key))

    def _free(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.leave()
        origin, self._origin = self._origin, None
        if origin is not None:
            self._places.open.remove(origin)
            if not self._waits:
                self._places.working.remove(origin)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Do not count the request as being worked on while it waits for its client or for another system."""
        self._waits += 1
        if self._origin is not None and self._waits == 1:
            self._places.working.remove(self._origin)
            if self._turn is not None:
                self._turn.leave()
        try:
            yield
        finally:
            self._waits -= 1
            if self._origin is not None and not self._waits:
                self._places.working.add(self._origin)
                if self._turn is not None:
                    self._turn.resume()

    def become_stream(self, release: Callable[[], None]) -> None:
        """Give the slot back, because the response is a stream, which has a limit of its own. `release` is called when it ends."""
        self._free()
        self._release = release
        self._places.streams.add(self)
        if self._places.has_ended_streams:
            self.end()

    def end(self) -> None:
        """Let the application end its stream, as if the client had left."""
        self.ended.set()
