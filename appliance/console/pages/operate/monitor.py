"""The page of the Monitor: executions, durations, the queue and failures within a time range."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.console.frame.time_ranges import SPANS, TimeRange, parse_time_range
from appliance.console.pages.settings.appliance import is_administrator
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.monitor import Series, Summary, TrafficNumbers, Window, analytics, failures, traffic
from appliance.tenants.keys import keys

WIDTH, HEIGHT = 640, 120
MOST_ROWS = 10


@dataclass(frozen=True)
class Lines:
    """Median (`half`) and 95th percentile (`slow`) of durations as SVG polylines, one per gapless segment.

    `most` is the duration at the top of the chart in ms.
    """

    most: float
    half: list[str]
    slow: list[str]


@page("GET", "/monitor", scope="logs.read")
def show_monitor(visit: Visit) -> Answer:
    """Executions, their durations, the queue, failures, integrations and keys."""
    time_range = parse_time_range(visit, "24h")
    by_process = visit.request.args.get("by") == "process"
    window = Window(time_range.since, time_range.until)
    series = analytics.read_series(visit.scope, window, most_names=MOST_ROWS if by_process else 0)
    waiting = Window(time_range.since, time_range.until, kind="waiting")
    wait_times = analytics.read_series(visit.scope, waiting, most_names=0).total
    groups = failures.list_failures(visit.scope, PageRequest(MAX_LIMIT)).items
    recent = [group for group in groups if group.first_seen < time_range.until and group.last_seen >= time_range.since][:MOST_ROWS]
    values = {
        "chosen": time_range, "spans": SPANS, "series": series, "waited": wait_times, "lines": _lines(series),
        "width": WIDTH, "height": HEIGHT,
        "queue": visit.services.processes.queue_state(visit.scope), "groups": recent,
        "by_process": by_process, "integrations": list(_integrations(visit, time_range)),
        "keys": list(_keys(visit, time_range)), "webapps": list(_webapps(visit, time_range)),
        "sandbox": visit.services.sandbox.health(), "runtimes": visit.services.sandbox.runtimes(),
        "on_demand": visit.services.sandbox.settings.starts_on_demand,
        "disk": visit.services.monitor.disk.read() if is_administrator(visit) else None,
    }  # fmt: skip
    return Page("monitor.html", values)


def _lines(series: Series) -> Lines | None:
    """The lines of the chart; None when there is no data."""
    half, slow = zip(*(point.percentiles(0.5, 0.95) for _, point in series.points), strict=True)
    most = max((value for value in slow if value is not None), default=0.0)
    if not most:
        return None
    step = WIDTH / len(series.points)
    return Lines(most, list(_line_segments(half, step, most)), list(_line_segments(slow, step, most)))


def _line_segments(values: Sequence[float | None], step: float, most: float) -> Iterator[str]:
    """The segments of a line as SVG points; intervals without data leave gaps."""
    piece: list[str] = []
    for index, value in enumerate(values):
        if value is None:
            if piece:
                yield " ".join(piece)
            piece = []
            continue
        y = round(HEIGHT - 2 - value / most * (HEIGHT - 6), 1)
        piece += [f"{round(index * step, 1)},{y}", f"{round((index + 1) * step, 1)},{y}"]
    if piece:
        yield " ".join(piece)


def _integrations(visit: Visit, time_range: TimeRange) -> Iterator[tuple[str, Summary | None, str]]:
    """Every integration with its numbers and the state of its circuit breaker."""
    if not visit.may("integrations.read"):
        return
    summaries = analytics.read_names(visit.scope, Window(time_range.since, time_range.until, kind="integration"))
    for each in visit.services.integrations.list_integrations(visit.scope, PageRequest(MAX_LIMIT)).items:
        yield each.slug, summaries.get(each.slug), visit.services.integrations.health(visit.scope, each.slug).state


def _keys(visit: Visit, time_range: TimeRange) -> Iterator[tuple[keys.ApiKey, TrafficNumbers | None]]:
    """The API keys used in this time range with their numbers, the busiest first."""
    if not visit.may("keys.read"):
        return
    numbers = traffic.read_numbers(visit.scope, "key", time_range.since, time_range.until)
    all_keys = keys.list_keys(visit.scope, PageRequest(MAX_LIMIT)).items
    used = [key for key in all_keys if key.id in numbers or (key.last_used_at or 0) >= time_range.since]
    used.sort(key=lambda key: (-numbers[key.id].summary.count if key.id in numbers else 0, -(key.last_used_at or 0)))
    yield from ((key, numbers.get(key.id)) for key in used[:MOST_ROWS])


def _webapps(visit: Visit, time_range: TimeRange) -> Iterator[tuple[str, TrafficNumbers]]:
    """The WebApps visited in this time range with their numbers, the busiest first."""
    if visit.may("webapps.read"):
        yield from list(traffic.read_numbers(visit.scope, "webapp", time_range.since, time_range.until).items())[:MOST_ROWS]
