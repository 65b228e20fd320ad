"""The page of the Monitor: what ran, how long it took, what waits and what fails, over one range of time."""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.console.frame.spans import SPANS, Range, range_of
from appliance.console.pages.settings.appliance import is_administrator
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.monitor import Numbers, Series, Summary, Window, analytics, failures, traffic
from appliance.tenants.keys import keys

WIDTH, HEIGHT = 640, 120
MOST_ROWS = 10


@dataclass(frozen=True)
class Lines:
    """Durations over time as lines of a drawing, each a list of pieces without gaps; `most` is the height of it in ms."""

    most: float
    half: list[str]
    slow: list[str]


@page("GET", "/monitor", scope="logs.read")
def show_monitor(visit: Visit) -> Answer:
    """Executions, their durations, the queue, failures, integrations and keys."""
    chosen = range_of(visit, "24h")
    series = analytics.read_series(visit.scope, Window(chosen.since, chosen.until))
    waited = analytics.read_series(visit.scope, Window(chosen.since, chosen.until, kind="waiting")).total
    groups = failures.list_failures(visit.scope, PageRequest(MAX_LIMIT)).items
    recent = [group for group in groups if group.first_seen < chosen.until and group.last_seen >= chosen.since][:MOST_ROWS]
    values = {
        "chosen": chosen, "spans": SPANS, "series": series, "waited": waited, "lines": _lines(series),
        "width": WIDTH, "height": HEIGHT,
        "queue": visit.services.processes.queue_state(visit.scope), "groups": recent,
        "processes": list(series.names.items())[:MOST_ROWS], "integrations": list(_integrations(visit, chosen)),
        "keys": list(_keys(visit, chosen)), "webapps": list(_webapps(visit, chosen)), "sandbox": visit.services.pool.health(),
        "disk": visit.services.disk.read() if is_administrator(visit) else None,
    }  # fmt: skip
    return Page("monitor.html", values)


def _lines(series: Series) -> Lines | None:
    """None when nothing was counted."""
    half = [(index, point.percentile(0.5)) for index, (_, point) in enumerate(series.points)]
    slow = [(index, point.percentile(0.95)) for index, (_, point) in enumerate(series.points)]
    most = max((value for _, value in slow if value is not None), default=0.0)
    if not most:
        return None
    step = WIDTH / max(1, len(series.points))
    return Lines(most, list(_drawn(half, step, most)), list(_drawn(slow, step, most)))


def _drawn(values: list[tuple[int, float | None]], step: float, most: float) -> Iterator[str]:
    """Pieces of a line, each as wide as its points; where nothing was counted there is a gap."""
    piece: list[str] = []
    for index, value in values:
        if value is None:
            if piece:
                yield " ".join(piece)
            piece = []
            continue
        y = round(HEIGHT - 2 - value / most * (HEIGHT - 6), 1)
        piece += [f"{round(index * step, 1)},{y}", f"{round((index + 1) * step, 1)},{y}"]
    if piece:
        yield " ".join(piece)


def _integrations(visit: Visit, chosen: Range) -> Iterator[tuple[str, Summary | None, str]]:
    """Every integration with what was counted of it and how its foreign system fares."""
    if not visit.may("integrations.read"):
        return
    counted = analytics.read_series(visit.scope, Window(chosen.since, chosen.until, kind="integration")).names
    for each in visit.services.integrations.list_integrations(visit.scope, PageRequest(MAX_LIMIT)).items:
        yield each.slug, counted.get(each.slug), visit.services.integrations.health(visit.scope, each.slug).state


def _keys(visit: Visit, chosen: Range) -> Iterator[tuple[keys.ApiKey, Numbers | None]]:
    """Keys that were used in this time with what came of them, the busiest first."""
    if not visit.may("keys.read"):
        return
    counted = traffic.read_numbers(visit.scope, "key", chosen.since, chosen.until)
    known = keys.list_keys(visit.scope, PageRequest(MAX_LIMIT)).items
    used = [key for key in known if key.id in counted or (key.last_used_at or 0) >= chosen.since]
    used.sort(key=lambda key: (-counted[key.id].summary.count if key.id in counted else 0, -(key.last_used_at or 0)))
    yield from ((key, counted.get(key.id)) for key in used[:MOST_ROWS])


def _webapps(visit: Visit, chosen: Range) -> Iterator[tuple[str, Numbers]]:
    """Apps that were visited in this time, the busiest first."""
    if visit.may("webapps.read"):
        yield from list(traffic.read_numbers(visit.scope, "webapp", chosen.since, chosen.until).items())[:MOST_ROWS]
