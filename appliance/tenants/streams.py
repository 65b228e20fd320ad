"""Limits of what stays open: streams of events, and requests that wait for something to finish."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from appliance.core.errors import ConcurrencyLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import REFUSALS

RETRY_SECONDS = 5
LOOKS_PER_SECOND = 200  # of all streams and waiting requests of one process together


class RequestPlace(Protocol):
    """What admission keeps of a request, under `PLACE` in the ASGI scope."""

    def aside(self) -> AbstractContextManager[None]:
        """While the request waits, it takes no place of work."""

    def become_stream(self, release: Callable[[], None]) -> None:
        """The request gives its place back for good; `release` is called at its end."""


PLACE = "gos.place"


class NoPlace:
    """Of a request that came past no admission, as the appliance's own do."""

    def aside(self) -> AbstractContextManager[None]:
        """There is no place to leave."""
        return nullcontext()

    def become_stream(self, release: Callable[[], None]) -> None:
        """There is nobody to call `release`, so the appliance asks itself for no streams."""
        raise RuntimeError("a stream needs a request with a place")


@dataclass(frozen=True)
class StreamLimits:
    """How many streams one credential, one tenant and everybody together may have open, in one process."""

    per_key: int
    per_tenant: int
    total: int


class Streams:
    """Counts what is open in this process; thread-safe."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._keys: Counter[tuple[str, str]] = Counter()
        self._tenants: Counter[str] = Counter()
        self._waits = 0
        self._lock = Lock()

    def open(self, scope: TenantScope, place: RequestPlace) -> None:
        """Count a stream until its request ends; its place of work is free at once.  ConcurrencyLimited."""
        key = (scope.tenant_id, scope.actor)
        with self._lock:
            self._refuse_more(key)
            self._keys[key] += 1
            self._tenants[scope.tenant_id] += 1
        place.become_stream(lambda: self._close(key))

    def _refuse_more(self, key: tuple[str, str]) -> None:
        limits, tenant_id = self._limits, key[0]
        if self._keys[key] >= limits.per_key:
            whose = Sentence(
                "this credential has %(per_key)s event streams open, which is its limit (limits.streams_per_key)",
                per_key=limits.per_key,
            )
            advice = "close one, or let one stream serve several readers"
        elif self._tenants[tenant_id] >= limits.per_tenant:
            whose = Sentence(
                "this tenant has %(per_tenant)s event streams open, which is its limit (limits.streams_per_tenant)",
                per_tenant=limits.per_tenant,
            )
            advice = "close one of another key, or ask the appliance's operator for more"
        elif self._tenants.total() >= limits.total:
            whose = Sentence(
                "the appliance has %(total)s event streams open, which is its limit (limits.streams)", total=limits.total
            )
            advice = "ask for the state now and then instead, or try again later"
        else:
            return
        REFUSALS.inc(1, "streams")
        raise ConcurrencyLimited(
            Sentence("%(whose)s; %(advice)s", whose=whose, advice=advice), headers={"Retry-After": str(RETRY_SECONDS)}
        )

    def _close(self, key: tuple[str, str]) -> None:
        with self._lock:
            _count_down(self._keys, key)
            _count_down(self._tenants, key[0])

    @contextmanager
    def waiting(self, place: RequestPlace) -> Iterator[None]:
        """A request that waits for a result takes no place of work meanwhile."""
        with self._lock:
            self._waits += 1
        try:
            with place.aside():
                yield
        finally:
            with self._lock:
                self._waits -= 1

    def pause(self, least: float) -> float:
        """Seconds between two looks of one stream: the more are open, the longer, so that all together cost the same."""
        return max(least, (self._tenants.total() + self._waits) / LOOKS_PER_SECOND)

    def count(self) -> int:
        """How many streams are open."""
        return self._tenants.total()


def _count_down(counter: "Counter[Any]", key: Any) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
