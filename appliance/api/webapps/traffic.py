"""/api/v1/webapps/{app}/requests and /analytics: the traffic of a WebApp, and its usage."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.routing import Call, ListQuery, Query, View, route
from appliance.api.monitor.logs import Moment, parse_moment
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.webapps.traffic import RequestRow, statistics, usage


class WebAppUsageView(View):
    """The storage of a WebApp and its traffic today (UTC, delayed by seconds); a limit is absent when there is none."""

    stored_bytes: Annotated[int, Field(description="Size of the contents of all versions, each counted once, before compression.")]
    stored_limit_bytes: Annotated[
        int | None, Field(description="The most that its versions may store; absent for no limit.")
    ] = None
    requests_today: Annotated[int, Field(description="Number of requests since midnight UTC.")]
    requests_per_minute_limit: Annotated[
        int | None, Field(description="Requests answered within a minute before further ones get 429; absent for no limit.")
    ] = None
    egress_today_bytes: Annotated[int, Field(description="Bytes of response bodies sent since midnight UTC.")]
    egress_limit_bytes: Annotated[
        int | None, Field(description="The most that may be sent from midnight to midnight UTC; absent for no limit.")
    ] = None


def read_usage(call: Call, app: str) -> WebAppUsageView:
    """Read the usage of a WebApp, which must exist."""
    own = call.services.config.webapps
    allowance = usage.UsageLimits.of(own.stored_mb, own.requests_per_minute, own.egress_mb_per_day)
    used = usage.read_usage(call.scope, app, call.services.webapps.apps.stored_bytes(call.scope, app), allowance)
    return WebAppUsageView(
        stored_bytes=used.stored, stored_limit_bytes=allowance.stored, requests_today=used.requests_today,
        requests_per_minute_limit=allowance.per_minute, egress_today_bytes=used.sent_today, egress_limit_bytes=allowance.sent,
    )  # fmt: skip


class RequestsQuery(ListQuery):
    status: Annotated[str, Field(max_length=3, description="A status such as 404, or a class such as 4xx.")] | None = None
    path: Annotated[str, Field(max_length=500, description="A path, or with a final * all paths that begin so.")] | None = None
    since: Annotated[
        Moment, Field(description="Only requests after this RFC 3339 time, or after a duration ago such as `24h`.")
    ] | None = None


class WebAppRequestView(View):
    """A request; `address` is truncated as configured, `agent` is the kind of browser and `referrer` a host.

    `visitor` is equal for requests from one address with one browser on one day, and identifies nobody beyond that.
    """

    at: Annotated[str, Field(description="When the request arrived, RFC 3339 in UTC with milliseconds.")]
    method: Annotated[str, Field(description="HTTP method, such as `GET`.")]
    path: Annotated[str, Field(description="Requested path without its query string, cut at 500 bytes.")]
    status: Annotated[int, Field(description="HTTP status of the response.")]
    bytes: Annotated[int, Field(description="Length of the response's body as sent.")]
    ms: Annotated[float, Field(description="Duration until the response was sent, in milliseconds.")]
    address: Annotated[
        str, Field(description="Network of the visitor, or the whole IP address if the operator stores those; may be empty.")
    ]
    agent: Annotated[str, Field(description="Family of the browser or program: `Firefox`, `bot`, `program`, `other`, …")]
    referrer: Annotated[str, Field(description="Host the visitor came from; empty if unknown or the WebApp itself.")]
    visitor_kind: Annotated[
        str, Field(description="How the visitor was signed in: `anonymous`, `password`, `member` or `user`.")
    ]
    visitor: Annotated[
        str, Field(description="Pseudonym of 16 hexadecimal digits, new every day, made from address and browser.")
    ]
    route: Annotated[str | None, Field(description="Path pattern of the route that answered; absent for a file.")] = None
    execution_id: Annotated[str | None, Field(description="The execution that a route started; absent if none.")] = None


class TrafficQuery(Query):
    since: Annotated[
        Moment, Field(description="Beginning of the period: an RFC 3339 time, or a duration ago such as `24h`.")
    ] = "24h"
    until: Annotated[
        Moment, Field(description="End of the period, at most 366 days after its beginning; the same formats, by default now.")
    ] | None = None
    bucket: Annotated[
        str,
        Field(max_length=20, description="Width of a point, such as `5m`, `1h` or `1d`; by default chosen for about 120 points."),
    ] | None = None


class WebAppNumbersView(View):
    """`errors` counts answers with a status of 500 or more; `visitors` are counted per day."""

    requests: Annotated[int, Field(description="Number of requests.")]
    bytes: Annotated[int, Field(description="Length of all responses' bodies as sent.")]
    errors: Annotated[int, Field(description="Number of responses with a status of 500 or more.")]
    visitors: Annotated[int, Field(description="Number of different visitors; one who returns on another day counts again.")]


class WebAppPointView(WebAppNumbersView):
    at: Annotated[str, Field(description="When the point begins, RFC 3339 in UTC.")]


class WebAppCountView(View):
    """A value and the number of its requests."""

    value: Annotated[str, Field(description="The path, host, status or kind of browser that is counted.")]
    requests: Annotated[int, Field(description="How many requests in the period had it.")]


class WebAppTrafficView(View):
    """The traffic of a period, with the most frequent paths, referrers, statuses and kinds of browser."""

    since: Annotated[str, Field(description="Beginning of the period, RFC 3339 in UTC.")]
    until: Annotated[str, Field(description="End of the period, RFC 3339 in UTC; requests at this time are not included.")]
    bucket_ms: Annotated[int, Field(description="Width of a point in milliseconds.")]
    total: Annotated[WebAppNumbersView, Field(description="Sums over the whole period.")]
    points: Annotated[list[WebAppPointView], Field(description="Sums over equal parts of the period, oldest first; at most 1,000.")]
    paths: Annotated[list[WebAppCountView], Field(description="The 20 paths requested most, most frequent first.")]
    referrers: Annotated[list[WebAppCountView], Field(description="The 20 hosts most visitors came from, most frequent first.")]
    statuses: Annotated[list[WebAppCountView], Field(description="The 20 most frequent HTTP statuses, most frequent first.")]
    agents: Annotated[list[WebAppCountView], Field(description="The 20 most frequent kinds of browser, most frequent first.")]


@route(
    "GET", "/webapps/{app}/requests", scope="webapps.read", query=RequestsQuery, returns=WebAppRequestView, listed=True,
    errors=(ValidationFailed,),
)  # fmt: skip
def list_webapp_requests(call: Call, app: str) -> object:
    """List the requests to a WebApp.

    Newest first unless sorted; a request appears a few seconds after it was answered.
    """
    query = call.query
    filters = statistics.RequestFilter(query.status, query.path, parse_moment(query.since, "since"))
    return statistics.list_requests(call.scope, app, filters, query.page).map(_request_view)


def _request_view(row: RequestRow) -> WebAppRequestView:
    members = {name: getattr(row, name) for name in WebAppRequestView.model_fields if name != "at"}
    return WebAppRequestView(at=clock.rfc3339(row.at), **members)


@route(
    "GET", "/webapps/{app}/analytics", scope="webapps.read", query=TrafficQuery, returns=WebAppTrafficView,
    errors=(ValidationFailed,),
)  # fmt: skip
def get_webapp_analytics(call: Call, app: str) -> WebAppTrafficView:
    """Show the traffic of a WebApp over time.

    Requests, bytes, errors and visitors, in all and per point, and what was most frequent.
    """
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
