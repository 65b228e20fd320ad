"""Counters over time: how often something happened and how long it took, compact enough for months.

Durations are counted in log-spaced slots (four per doubling), each with their sum, minimum and maximum, so that adding is one
upsert and merging two counters is exact.  A percentile is exact while no slot has more than three durations, and within a tenth
of the true value beyond that.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope, tenant_ids

from . import rollup
from .retention import delete_in_chunks

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# (older than, stored by): see `compact`
RESOLUTIONS = ((2 * DAY, HOUR), (90 * DAY, DAY))
_SLOTS_PER_DOUBLING = 4

Row = tuple[Any, ...]
"""A bucket or name, a result, a slot; count, and sum, minimum and maximum in ms, the last two None where not recorded."""
slot_of_row, count_of = itemgetter(2), itemgetter(3)

_COLUMNS = "tenant_id, kind, at, name, outcome, slot, count, sum_ms, low_ms, high_ms"
_MERGE_CLAUSE = (
    "ON CONFLICT (tenant_id, kind, at, name, outcome, slot) "
    "DO UPDATE SET count = tally.count + excluded.count, sum_ms = tally.sum_ms + excluded.sum_ms, "
    "low_ms = CASE WHEN tally.low_ms < excluded.low_ms THEN tally.low_ms ELSE excluded.low_ms END, "
    "high_ms = CASE WHEN tally.high_ms > excluded.high_ms THEN tally.high_ms ELSE excluded.high_ms END"
)
_ADD = f"INSERT INTO tally ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {_MERGE_CLAUSE}"  # noqa: S608
_MERGE = (
    f"INSERT INTO tally ({_COLUMNS}) SELECT tenant_id, kind, at - at % ?, name, outcome, slot, SUM(count), SUM(sum_ms), "  # noqa: S608
    "MIN(low_ms), MAX(high_ms) FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? AND at % ? <> 0 "
    f"GROUP BY tenant_id, kind, at - at % ?, name, outcome, slot {_MERGE_CLAUSE}"
)
_DROP = "DELETE FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? AND at % ? <> 0"


@dataclass(frozen=True, slots=True)
class CountedEvents:
    """Events of one minute (its start in epoch ms) with the same result and slot; `low_ms` and `high_ms` are their shortest and
    longest durations."""

    name: str
    minute: int
    result: str
    slot: int
    count: int
    sum_ms: float
    low_ms: float | None
    high_ms: float | None


@dataclass(slots=True)
class Extent:
    """The durations (ms) in one slot; minimum and maximum are None where they were not recorded."""

    count: int = 0
    sum_ms: float = 0.0
    low_ms: float | None = None
    high_ms: float | None = None

    def add(self, count: int, sum_ms: float, low_ms: float | None, high_ms: float | None) -> None:
        """Add more durations to the slot."""
        self.count += count
        self.sum_ms += sum_ms
        if low_ms is not None and high_ms is not None:
            if self.low_ms is None or low_ms < self.low_ms:
                self.low_ms = low_ms
            if self.high_ms is None or high_ms > self.high_ms:
                self.high_ms = high_ms

    def value(self, slot: int, place: int) -> float:
        """The duration at this rank (from 1) within the slot: exact for up to three durations, otherwise interpolated."""
        lower, upper = bounds_of(slot)
        low, high = self.low_ms if self.low_ms is not None else lower, self.high_ms if self.high_ms is not None else upper
        if self.count == 1:
            return self.sum_ms
        if self.count == 3 and place == 2 and self.low_ms is not None:
            return min(high, max(low, self.sum_ms - low - high))
        return low + (high - low) * (place - 1) / (self.count - 1)


def add(scope: TenantScope, kind: str, name: str, duration_ms: float) -> None:
    """Inside a write: count one event of a `kind` (`execution`, `waiting`, `step`, `integration`).

    `name` is `<what>:<outcome>`: the process, kind of step or integration, and its result (`order-intake:succeeded`).
    """
    what, _, result = name.rpartition(":")
    minute = clock.now_ms() // MINUTE * MINUTE
    add_events(scope, kind, CountedEvents(what, minute, result, slot_of(duration_ms), 1, *[duration_ms] * 3))


def add_events(scope: TenantScope, kind: str, counted: CountedEvents) -> None:
    """Inside a write: add events counted elsewhere."""
    values = (counted.minute, counted.name, counted.result, counted.slot, counted.count, counted.sum_ms)
    db.send(_ADD, (scope.tenant_id, kind, *values, counted.low_ms, counted.high_ms))
    rollup.mark_late(scope, kind, counted.minute)


def slot_of(duration_ms: float) -> int:
    """The slot of a duration: 0 below 1 ms, then four per doubling."""
    return 0 if duration_ms < 1 else 1 + int(_SLOTS_PER_DOUBLING * math.log2(duration_ms))


def bounds_of(slot: int) -> tuple[float, float]:
    """The range of durations (ms) of a slot."""
    return 0.0 if slot == 0 else 2 ** ((slot - 1) / _SLOTS_PER_DOUBLING), 2 ** (slot / _SLOTS_PER_DOUBLING)


def percentiles(rows: Iterable[Row], shares: Sequence[float]) -> list[float | None]:
    """For each share, the shortest duration (ms) that at least this share of all do not exceed (nearest rank); None if nothing
    was counted."""
    rows = sorted(rows, key=slot_of_row)
    ends = list(itertools.accumulate(map(count_of, rows)))
    if not ends:
        return [None for _ in shares]
    values: list[float | None] = []
    for share in shares:
        place = max(1, math.ceil(share * ends[-1] - 1e-9))
        slot = slot_of_row(rows[bisect.bisect_left(ends, place)])
        first = bisect.bisect_left(rows, slot, key=slot_of_row)
        extent = Extent()
        for row in rows[first : bisect.bisect_right(rows, slot, lo=first, key=slot_of_row)]:
            extent.add(*row[3:])
        values.append(round(extent.value(slot, place - (ends[first - 1] if first else 0)), 3))
    return values


def compact() -> int:
    """Merge old counters: by the hour after two days, by the day after 90 days; returns the number of merged rows.

    Each coarser period is one transaction, so this can be interrupted at any time.
    """
    now = clock.now_ms()
    merged = 0
    for age, width in RESOLUTIONS:
        before = (now - age) // width * width
        for tenant_id in tenant_ids():
            merged += _compact_tenant(tenant_id, width, before)
    return merged


def _compact_tenant(tenant_id: str, width: int, before: int) -> int:
    fine = db.rows(
        "SELECT DISTINCT kind, at - at % ? FROM tally WHERE tenant_id = ? AND at < ? AND at % ? <> 0",
        (width, tenant_id, before, width),
    )

    def merge(kind: str, start: int) -> int:
        db.execute(_MERGE, (width, tenant_id, kind, start, start + width, width, width))
        return db.execute(_DROP, (tenant_id, kind, start, start + width, width))

    return sum(db.write(partial(merge, kind, start)) for kind, start in fine)


def purge(before_ms: int) -> int:
    """Delete every tenant's counters from before `before_ms`; returns their number."""
    kinds = ((tenant_id, kind) for tenant_id in tenant_ids() for kind in rollup.KINDS)
    return sum(delete_in_chunks(partial(_delete_oldest, *each, before_ms)) for each in kinds)


def _delete_oldest(tenant_id: str, kind: str, before_ms: int) -> int:
    """Inside a write: delete the oldest counters of a kind, of an hour at most; returns their number."""
    ((first,),) = db.rows("SELECT MIN(at) FROM tally WHERE tenant_id = ? AND kind = ? AND at < ?", (tenant_id, kind, before_ms))
    if first is None:
        return 0
    until = min(before_ms, int(first) + HOUR)
    return db.execute("DELETE FROM tally WHERE tenant_id = ? AND kind = ? AND at < ?", (tenant_id, kind, until))
