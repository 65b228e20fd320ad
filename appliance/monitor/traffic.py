"""Counts requests per API key and per WebApp: their number, failures, durations and response bytes.

Stored as separate kinds of counters: `key` and `webapp` by result and duration, and the response bytes as the sum of a
second kind, where other counters have milliseconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from appliance.core import clock
from appliance.core.scope import TenantScope, tenant_ids

from . import tally
from .analytics import Summary, Window, read_names
from .collecting import Collected

TrafficKind = Literal["key", "webapp"]
BYTES_OF: Mapping[TrafficKind, Literal["key_bytes", "webapp_bytes"]] = {"key": "key_bytes", "webapp": "webapp_bytes"}


class AnsweredRequest(NamedTuple):
    """An answered request, `at` in epoch milliseconds; `name` is the id of the key or the app."""

    tenant_id: str
    of: TrafficKind
    name: str
    at: int
    status: int
    ms: float
    sent: int


def result_of(status: int) -> str:
    """The result of a status: `refused` for client errors, `failed` for server errors."""
    return "succeeded" if status < 400 else "refused" if status < 500 else "failed"


def count_requests(requests: Iterable[AnsweredRequest]) -> None:
    """Inside a write: add requests to the counters; those of tenants deleted meanwhile are skipped."""
    summed: dict[tuple[str, str, str, int, str, int], tally.Extent] = {}
    tenants = frozenset(tenant_ids())
    for each in (each for each in requests if each.tenant_id in tenants):
        minute, slot = each.at // tally.MINUTE * tally.MINUTE, tally.slot_of(each.ms)
        for key, value in (
            ((each.tenant_id, each.of, each.name, minute, result_of(each.status), slot), each.ms),
            ((each.tenant_id, BYTES_OF[each.of], each.name, minute, "succeeded", 0), each.sent),
        ):
            summed.setdefault(key, tally.Extent()).add(1, value, value, value)
    for (tenant_id, kind, name, minute, result, slot), sum_of in summed.items():
        counted = tally.CountedEvents(
            name=name, minute=minute, result=result, slot=slot, count=sum_of.count, sum_ms=sum_of.sum_ms, low_ms=sum_of.low_ms,
            high_ms=sum_of.high_ms,
        )
        tally.add_events(TenantScope(tenant_id, "system"), kind, counted)


class KeyTraffic(Collected[AnsweredRequest]):
    """Collects requests by keys; they are stored every two seconds."""

    def __init__(self) -> None:
        super().__init__(count_requests)

    def add(self, scope: TenantScope, status: int, ms: float, sent: int) -> None:
        """Add a request of the key that acts in `scope`; does not block."""
        kind, _, key_id = scope.actor.partition(":")
        if kind == "key":
            self.put(AnsweredRequest(
                tenant_id=scope.tenant_id, of="key", name=key_id, at=clock.now_ms(), status=status, ms=ms, sent=sent,
            ))


@dataclass(frozen=True)
class TrafficNumbers:
    """Requests of one key or to one app; `sent` is in bytes."""

    summary: Summary
    sent: int


def read_numbers(scope: TenantScope, of: TrafficKind, since: int, until: int) -> dict[str, TrafficNumbers]:
    """Numbers by key or app id, those with the most requests first, at most 50."""
    sent = read_names(scope, Window(since, until, kind=BYTES_OF[of]))
    return {
        name: TrafficNumbers(summary, int(sent[name].sum_ms) if name in sent else 0)
        for name, summary in read_names(scope, Window(since, until, kind=of)).items()
    }
