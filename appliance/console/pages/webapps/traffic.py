"""The traffic of a WebApp: figures over time, its usage and limits, and its individual requests."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core import clock
from appliance.core.errors import InvalidRequest
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.processes.executions import ExecutionFilter, ExecutionSummary
from appliance.processes.executions import service as executions
from appliance.webapps.traffic import RequestFilter, RequestRow, Traffic, UsageLimits, Window, read_usage, statistics

HOUR, DAY = 3_600_000, 86_400_000
# By their names in the URL: the label, the length, and the width of a bar, both in ms.
SPANS = {
    "24h": (mark("24 hours"), 24 * HOUR, HOUR),
    "7d": (mark("7 days"), 7 * DAY, DAY),
    "30d": (mark("30 days"), 30 * DAY, DAY),
    "90d": (mark("90 days"), 90 * DAY, DAY),
}
CLASSES = {"2xx": mark("Successful"), "3xx": mark("Redirected"), "4xx": mark("Rejected"), "5xx": mark("Failed")}
LONGEST_PATH = 500
TOP = 10
FAILED = 5


@page("GET", "/webapps/<app>/requests", scope="webapps.read")
def show_requests(visit: Visit, app: str) -> Answer:
    """The figures of an app and its requests, newest first, filtered by status class and path."""
    args = visit.request.args
    span, status, path = args.get("span") or "7d", args.get("status") or None, args.get("path", "").strip()[:LONGEST_PATH]
    if span not in SPANS or status not in (None, *CLASSES):
        raise InvalidRequest(Sentence(
            "`span` must be one of %(spans)s, and `status` one of %(statuses)s", spans=", ".join(SPANS), statuses=", ".join(CLASSES)
        ))
    now, (_, length, bucket) = clock.now_ms(), SPANS[span]
    traffic = statistics.read_traffic(visit.scope, app, Window(now - length + bucket, now + 1, bucket))
    result = statistics.list_requests(visit.scope, app, RequestFilter(status, path or None, traffic.since), visit.page())
    of_routes = RequestFilter("5xx", None, traffic.since, of_routes=True)
    failed = statistics.list_requests(visit.scope, app, of_routes, PageRequest(FAILED)).items
    own = visit.services.config.webapps
    allowance = UsageLimits.of(own.stored_mb, own.requests_per_minute, own.egress_mb_per_day)
    values = {
        "app": visit.services.webapps.apps.get_app(visit.scope, app), "traffic": traffic, "tops": list(_tops(traffic)),
        "usage": read_usage(visit.scope, app, visit.services.webapps.apps.stored_bytes(visit.scope, app), allowance),
        "rows": result.items, "next_cursor": result.next_cursor, "span": span, "spans": SPANS, "is_by_day": bucket == DAY,
        "failed": failed, "executions": _executions_of(visit, failed),
        "status": status or "", "classes": CLASSES, "path": path, "query": urlencode({"span": span, "path": path}),
    }  # fmt: skip
    return Page("webapp_requests.html", values)


def _executions_of(visit: Visit, rows: Sequence[RequestRow]) -> Mapping[str, ExecutionSummary]:
    """The executions that the requests started, by id, as far as they still exist; empty if the visitor may not read them."""
    ids = [row.execution_id for row in rows if row.execution_id]
    if not ids or not visit.may("processflow.read"):
        return {}
    result = executions.list_summaries(visit.scope, ExecutionFilter(ids=ids), PageRequest(FAILED))
    return {brief.id: brief for brief in result.items}


def _tops(traffic: Traffic) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """The most frequent values by title, without empty lists."""
    lists = {
        mark("Pages"): traffic.paths, mark("Referrers"): traffic.referrers, mark("Status codes"): traffic.statuses,
        mark("Browsers"): traffic.agents,
    }  # fmt: skip
    for title, counted in lists.items():
        if counted:
            yield title, list(counted.items())[:TOP]
