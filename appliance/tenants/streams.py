"""Limits on long-lived requests: event streams, and requests that wait for something to finish."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from appliance.core.database.presence import ServerCount
from appliance.core.errors import ConcurrencyLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import REFUSALS

RETRY_SECONDS = 5
POLLS_PER_SECOND = 200  # for all streams and waiting requests of one process together


class AdmissionSlot(Protocol):
    """A request's admission slot, stored under `PLACE` in the ASGI scope."""

    def released(self) -> AbstractContextManager[None]:
        """Release the slot while the request waits."""

    def become_stream(self, release: Callable[[], None]) -> None:
        """Release the slot permanently; `release` is called when the request ends."""


PLACE = "gos.place"


class NoSlot:
    """The slot of a request that passed no admission, such as the appliance's own requests."""

    def released(self) -> AbstractContextManager[None]:
        """Do nothing, as there is no slot to release."""
        return nullcontext()

    def become_stream(self, release: Callable[[], None]) -> None:
        """Fail: there is nothing that would call `release`."""
        raise RuntimeError("a stream needs a request with a place")


@dataclass(frozen=True)
class StreamLimits:
    """The maximum numbers of open streams: per credential and per tenant for all processes, and in total for each process."""

    per_key: int
    per_tenant: int
    total: int


class Streams:
    """Counts open streams of this process, which opens its share of those of a credential or tenant; thread-safe."""

    def __init__(self, limits: StreamLimits, servers: ServerCount | None = None) -> None:
        self._servers = servers or ServerCount()
        self._limits = limits
        self._keys: Counter[tuple[str, str]] = Counter()
        self._tenants: Counter[str] = Counter()
        self._waits = 0
        self._lock = Lock()

    def open(self, scope: TenantScope, place: AdmissionSlot) -> None:
        """Count a stream until its request ends, and release its admission slot now.  ConcurrencyLimited."""
        key = (scope.tenant_id, scope.actor)
        with self._lock:
            self._check_limits(key)
            self._keys[key] += 1
            self._tenants[scope.tenant_id] += 1
        place.become_stream(lambda: self._close(key))

    def _check_limits(self, key: tuple[str, str]) -> None:
        limits, share, tenant_id = self._limits, self._servers.share, key[0]
        if self._keys[key] >= share(limits.per_key):
            whose = _explain_key_limit(limits.per_key, share(limits.per_key))
            advice = "close one, or share one stream between several readers"
        elif self._tenants[tenant_id] >= share(limits.per_tenant):
            whose = _explain_tenant_limit(limits.per_tenant, share(limits.per_tenant))
            advice = "close one of another key, or ask the appliance's operator for a higher limit"
        elif self._tenants.total() >= limits.total:
            whose = Sentence(
                "the appliance has %(total)s event streams open, which is its limit (limits.streams)", total=limits.total
            )
            advice = "poll for the state instead, or try again later"
        else:
            return
        REFUSALS.inc(1, "streams")
        raise ConcurrencyLimited(
            Sentence("%(whose)s; %(advice)s", whose=whose, advice=advice), headers={"Retry-After": str(RETRY_SECONDS)}
        )

    def _close(self, key: tuple[str, str]) -> None:
        with self._lock:
            _decrement(self._keys, key)
            _decrement(self._tenants, key[0])

    @contextmanager
    def waiting(self, place: AdmissionSlot) -> Iterator[None]:
        """Release the admission slot while the request waits for a result."""
        with self._lock:
            self._waits += 1
        try:
            with place.released():
                yield
        finally:
            with self._lock:
                self._waits -= 1

    def poll_interval(self, least: float) -> float:
        """Seconds between two polls of one stream: longer with more open streams, so that their total cost stays constant."""
        return max(least, (self._tenants.total() + self._waits) / POLLS_PER_SECOND)

    def count(self) -> int:
        """The number of open streams."""
        return self._tenants.total()


def _explain_key_limit(per_key: int, share: int) -> Sentence:
    if share < per_key:
        return Sentence(
            "this credential has %(share)s event streams open on this server, its share of %(per_key)s (limits.streams_per_key)",
            share=share, per_key=per_key,
        )  # fmt: skip
    return Sentence(
        "this credential has %(per_key)s event streams open, which is its limit (limits.streams_per_key)", per_key=per_key
    )


def _explain_tenant_limit(per_tenant: int, share: int) -> Sentence:
    if share < per_tenant:
        return Sentence(
            "this tenant has %(share)s event streams open on this server, its share of %(per_tenant)s (limits.streams_per_tenant)",
            share=share, per_tenant=per_tenant,
        )  # fmt: skip
    return Sentence(
        "this tenant has %(per_tenant)s event streams open, which is its limit (limits.streams_per_tenant)", per_tenant=per_tenant
    )


def _decrement(counter: "Counter[Any]", key: Any) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
