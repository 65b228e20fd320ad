"""The last 24 hours of a tenant or of one process, as their figures stand on pages."""

from dataclasses import dataclass

from appliance.console.frame.routing import Visit
from appliance.core import clock
from appliance.monitor import Series, Summary, Window, analytics

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class Day:
    """Executions by the hour with the time in which they worked, and how long those waited that waited for something."""

    series: Series
    waited: Summary


def last_day(name: str | None = None) -> Window:
    """24 hours, by the hour."""
    now = clock.now_ms()
    return Window(now // HOUR_MS * HOUR_MS - DAY_MS + HOUR_MS, now + 1, HOUR_MS, name=name)


def read_day(visit: Visit, process_id: str | None = None) -> Day | None:
    """The figures, for whoever may see them."""
    if not visit.may("logs.read"):
        return None
    window = last_day(process_id)
    waited = analytics.read_total(visit.scope, "waiting", process_id, window.since)
    return Day(analytics.read_series(visit.scope, window), waited)
