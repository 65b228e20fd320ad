"""Figures of the last 24 hours, of a tenant or of one process."""

from dataclasses import dataclass

from appliance.console.frame.routing import Visit
from appliance.core import clock
from appliance.monitor import Series, Summary, Window, analytics

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class Day:
    """Executions and their working time by hour, and the waiting times of those that waited."""

    series: Series
    wait_times: Summary


def last_day(name: str | None = None) -> Window:
    """The last 24 hours in buckets of one hour, for all processes or the one named."""
    now = clock.now_ms()
    return Window(now // HOUR_MS * HOUR_MS - DAY_MS + HOUR_MS, now + 1, HOUR_MS, name=name)


def read_day(visit: Visit, process_id: str | None = None) -> Day | None:
    """The figures of the last 24 hours; None when the visitor may not see them."""
    if not visit.may("logs.read"):
        return None
    window = last_day(process_id)
    wait_times = analytics.read_total(visit.scope, "waiting", process_id, window.since)
    return Day(analytics.read_series(visit.scope, window, most_names=0), wait_times)
