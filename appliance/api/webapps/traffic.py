"""/api/v1/webapps/{app}/requests and /analytics: the traffic of a WebApp, and its usage."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.routing import Call, ListQuery, Query, View, route
from appliance.api.monitor.logs import Moment, parse_moment
from appliance.core import clock
from appliance.webapps.traffic import RequestRow, statistics, usage


class WebAppUsageView(View):
    """The storage of a WebApp and its traffic today (UTC, delayed by seconds); a limit is absent when there is none."""

    stored_bytes: int
    stored_limit_bytes: int | None = None
    requests_today: int
    requests_per_minute_limit: int | None = None
    egress_today_bytes: int
    egress_limit_bytes: int | None = None


def read_usage(call: Call, app: str) -> WebAppUsageView:
    """Read the usage of a WebApp, which must exist."""
    own = call.services.config.webapps
    allowance = usage.UsageLimits.of(own.stored_mb, own.requests_per_minute, own.egress_mb_per_day)
    used = usage.read_usage(call.scope, app, call.services.webapps.stored_bytes(call.scope, app), allowance)
    return WebAppUsageView(
        stored_bytes=used.stored, stored_limit_bytes=allowance.stored, requests_today=used.requests_today,
        requests_per_minute_limit=allowance.per_minute, egress_today_bytes=used.sent_today, egress_limit_bytes=allowance.sent,
    )  # fmt: skip


class RequestsQuery(ListQuery):
    status: Annotated[str, Field(max_length=3, description="A status such as 404, or a class such as 4xx.")] | None = None
    path: Annotated[str, Field(max_length=500, description="A path, or with a final * all paths that begin so.")] | None = None
    since: Moment | None = None


class WebAppRequestView(View):
    """A request; `address` is truncated as configured, `agent` is the kind of browser and `referrer` a host.

    `visitor` is equal for requests from one address with one browser on one day, and identifies nobody beyond that.
    """

    at: str
    method: str
    path: str
    status: int
    bytes: int
    ms: float
    address: str
    agent: str
    referrer: str
    visitor_kind: str
    visitor: str
    route: str | None = None
    execution_id: str | None = None


class TrafficQuery(Query):
    since: Moment = "24h"
    until: Moment | None = None
    bucket: Annotated[str, Field(max_length=20, description="The width of a point, such as 5m, 1h or 1d.")] | None = None


class WebAppNumbersView(View):
    """`errors` counts answers with a status of 500 or more; `visitors` are counted per day."""

    requests: int
    bytes: int
    errors: int
    visitors: int


class WebAppPointView(WebAppNumbersView):
    at: str


class WebAppCountView(View):
    """A value and the number of its requests."""

    value: str
    requests: int


class WebAppTrafficView(View):
    """The traffic of a period, with the most frequent paths, referrers, statuses and kinds of browser."""

    since: str
    until: str
    bucket_ms: int
    total: WebAppNumbersView
    points: list[WebAppPointView]
    paths: list[WebAppCountView]
    referrers: list[WebAppCountView]
    statuses: list[WebAppCountView]
    agents: list[WebAppCountView]


@route(
    "GET", "/webapps/{app}/requests", scope="webapps.read", query=RequestsQuery, returns=WebAppRequestView, listed=True
)  # fmt: skip
def list_webapp_requests(call: Call, app: str) -> object:
    """List the requests to a WebApp, newest first; a request appears a few seconds after it was answered."""
    query = call.query
    filters = statistics.RequestFilter(query.status, query.path, parse_moment(query.since, "since"))
    return statistics.list_requests(call.scope, app, filters, query.page).map(_request_view)


def _request_view(row: RequestRow) -> WebAppRequestView:
    members = {name: getattr(row, name) for name in WebAppRequestView.model_fields if name != "at"}
    return WebAppRequestView(at=clock.rfc3339(row.at), **members)


@route("GET", "/webapps/{app}/analytics", scope="webapps.read", query=TrafficQuery, returns=WebAppTrafficView)
def get_webapp_analytics(call: Call, app: str) -> WebAppTrafficView:
    """Show the requests, bytes, errors and visitors of a WebApp over time."""
    query: TrafficQuery = call.query
    window = statistics.Window(
        parse_moment(query.since, "since") or 0, parse_moment(query.until, "until") or clock.now_ms() + 1,
        clock.parse_duration(query.bucket, pointer="/bucket") if query.bucket else None,
    )  # fmt: skip
    traffic = statistics.read_traffic(call.scope, app, window)
    counted = {
        name: [WebAppCountView(value=value, requests=count) for value, count in getattr(traffic, name).items()]
        for name in ("paths", "referrers", "statuses", "agents")
    }
    return WebAppTrafficView(
        since=clock.rfc3339(traffic.since), until=clock.rfc3339(traffic.until), bucket_ms=traffic.bucket,
        total=_numbers(traffic.total), points=[_point(at, numbers) for at, numbers in traffic.points], **counted,
    )  # fmt: skip


def _numbers(numbers: statistics.TrafficCounts) -> WebAppNumbersView:
    return WebAppNumbersView(
        requests=numbers.requests, bytes=numbers.bytes, errors=numbers.errors, visitors=numbers.visitors
    )  # fmt: skip


def _point(at: int, numbers: statistics.TrafficCounts) -> WebAppPointView:
    return WebAppPointView(at=clock.rfc3339(at), **_numbers(numbers).model_dump())
