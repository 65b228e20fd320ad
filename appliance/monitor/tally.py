"""Counters over time: how often something happened and how long it took, kept small enough for months.

Durations are counted in log-spaced slots (four per doubling), so that adding is one upsert, sums of any two counters
are exact and a percentile is within a tenth of the truth.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from appliance.core import clock, db
from appliance.core.scope import TenantScope

from . import rollup
from .retention import delete_older, tenant_ids

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# (older than, is kept by): see `compact`
RESOLUTIONS = ((2 * DAY, HOUR), (90 * DAY, DAY))
_SLOTS_PER_DOUBLING = 4

_ADD = (
    "INSERT INTO tally (tenant_id, kind, at, name, outcome, slot, count, sum_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant_id, kind, at, name, outcome, slot) "
    "DO UPDATE SET count = tally.count + excluded.count, sum_ms = tally.sum_ms + excluded.sum_ms"
)
_MERGE = (
    "INSERT INTO tally (tenant_id, kind, at, name, outcome, slot, count, sum_ms) "
    "SELECT tenant_id, kind, at - at % ?, name, outcome, slot, SUM(count), SUM(sum_ms) FROM tally "
    "WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? AND at % ? <> 0 "
    "GROUP BY tenant_id, kind, at - at % ?, name, outcome, slot "
    "ON CONFLICT (tenant_id, kind, at, name, outcome, slot) "
    "DO UPDATE SET count = tally.count + excluded.count, sum_ms = tally.sum_ms + excluded.sum_ms"
)
_DROP = "DELETE FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? AND at % ? <> 0"


@dataclass(frozen=True, slots=True)
class Counted:
    """What happened in one minute (its beginning in epoch ms), alike in its outcome and its slot."""

    name: str
    minute: int
    outcome: str
    slot: int
    count: int
    sum_ms: float


def add(scope: TenantScope, kind: str, name: str, duration_ms: float) -> None:
    """Inside a write: count one `kind` (`execution`, `step`, `integration`).

    `name` is `<what>:<outcome>`: the process, kind of step or integration, and how it ended (`order-intake:succeeded`).
    """
    what, _, outcome = name.rpartition(":")
    minute = clock.now_ms() // MINUTE * MINUTE
    add_counted(scope, kind, Counted(what, minute, outcome, slot_of(duration_ms), 1, duration_ms))


def add_counted(scope: TenantScope, kind: str, counted: Counted) -> None:
    """Inside a write: count what was counted elsewhere already."""
    values = (counted.minute, counted.name, counted.outcome, counted.slot, counted.count, counted.sum_ms)
    db.execute(_ADD, (scope.tenant_id, kind, *values))
    rollup.note_late(scope, kind, counted.minute)


def slot_of(duration_ms: float) -> int:
    """The slot a duration falls into: 0 below 1 ms, then four per doubling."""
    return 0 if duration_ms < 1 else 1 + int(_SLOTS_PER_DOUBLING * math.log2(duration_ms))


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration (ms) that `share` of all stayed below, from counts by slot; None when nothing was counted."""
    total = sum(counts.values())
    if total == 0:
        return None
    rank = share * total
    passed = 0
    slot = 0
    for slot in sorted(counts):
        if passed + counts[slot] >= rank:
            break
        passed += counts[slot]
    lower = 0.0 if slot == 0 else 2 ** ((slot - 1) / _SLOTS_PER_DOUBLING)
    upper = 2 ** (slot / _SLOTS_PER_DOUBLING)
    return round(lower + (upper - lower) * min(1.0, max(0.0, (rank - passed) / counts[slot])), 3)


def compact() -> int:
    """Merge old counters: after two days they are kept by the hour, after 90 days by the day; answers how many went.

    Works through one step of the coarser resolution per transaction and may be stopped anywhere.
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
    """Delete every tenant's counters from before `before_ms`; answers how many."""
    return delete_older("tally", "at", "at", before_ms)
