"""Reads the traffic of a WebApp: single requests, and statistics over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peewee import fn

from appliance.core.database import db
from appliance.core.errors import InvalidRequest
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import DAY, HOUR, MINUTE
from appliance.webapps.models import WebAppRow

from .anonymization import FOLLOWED, FOLLOWED_SHOWN
from .models import RequestRow

MAX_POINTS = 1_000
TOP = 20
WIDEST = 366 * DAY
_NICE_POINTS = 120
_BUCKETS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY)
# Columns of the statistics: requests, bytes, responses with status 500 or above, and visitors (counted anew every day).
_NUMBERS = "COUNT(*), COALESCE(SUM(bytes), 0), COUNT(CASE WHEN status >= 500 THEN 1 END), COUNT(DISTINCT visitor)"
# Groups the paths of followed executions, for rows stored before tickets were removed from paths.
_GROUP_BY = {"path": f"CASE WHEN SUBSTR(path, 1, {len(FOLLOWED)}) = '{FOLLOWED}' THEN '{FOLLOWED_SHOWN}' ELSE path END"}
_FROM = "FROM webapp_request WHERE tenant_id = ? AND app_id = ? AND at >= ? AND at < ?"


@dataclass(frozen=True)
class RequestFilter:
    """Which requests to list: `status` is a code (404) or a class (4xx); `path` is exact, or a prefix with a final `*`;
    `of_routes` selects requests handled by a route."""

    status: str | None = None
    path: str | None = None
    since: int | None = None
    of_routes: bool = False


@dataclass(frozen=True)
class Window:
    """The time range [since, until) in milliseconds; `bucket` in milliseconds, or None to choose one that suits a chart."""

    since: int
    until: int
    bucket: int | None = None


@dataclass(frozen=True)
class TrafficCounts:
    """Requests, bytes, responses with status 500 or above, and visitors (counted anew every day)."""

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    visitors: int = 0


@dataclass(frozen=True)
class Traffic:
    """Counts per bucket, including empty ones, and the most frequent paths, referrers, statuses and browsers."""

    since: int
    until: int
    bucket: int
    total: TrafficCounts
    points: list[tuple[int, TrafficCounts]]
    paths: Mapping[str, int]
    referrers: Mapping[str, int]
    statuses: Mapping[str, int]
    agents: Mapping[str, int]


def list_requests(scope: TenantScope, app_id: str, filters: RequestFilter, page: PageRequest) -> Page[RequestRow]:
    """Matching requests, newest first; NotFound."""
    scope.get(WebAppRow, id=app_id)
    query = scope.select(RequestRow).where(RequestRow.app_id == app_id)
    if filters.status is not None:
        least, most = _parse_status(filters.status)
        query = query.where(RequestRow.status >= least, RequestRow.status <= most)
    path = f"{FOLLOWED}*" if filters.path == FOLLOWED_SHOWN else filters.path
    if path is not None and path.endswith("*"):
        prefix = path[:-1]
        query = query.where(fn.SUBSTR(RequestRow.path, 1, len(prefix)) == prefix)
    elif path is not None:
        query = query.where(RequestRow.path == path)
    if filters.since is not None:
        query = query.where(RequestRow.at >= filters.since)
    if filters.of_routes:
        query = query.where(RequestRow.route.is_null(False))
    result: Page[RequestRow] = paginate(query, page, {"at": RequestRow.at, "id": RequestRow.id}, default="-at")
    return result


def _parse_status(text: str) -> tuple[int, int]:
    if text.isascii() and text.isdigit() and len(text) == 3:
        return int(text), int(text)
    if len(text) == 3 and text[0] in "12345" and text[1:] == "xx":
        return int(text[0]) * 100, int(text[0]) * 100 + 99
    raise InvalidRequest("status must be a code such as 404 or a class such as 4xx", pointer="/status")


def read_traffic(scope: TenantScope, app_id: str, window: Window) -> Traffic:
    """The traffic in a window of time; NotFound, InvalidRequest for an empty window or too many buckets."""
    scope.get(WebAppRow, id=app_id)
    bucket = _choose_bucket(window)
    since, until = window.since // bucket * bucket, -(-window.until // bucket) * bucket
    if (until - since) // bucket > MAX_POINTS:
        raise InvalidRequest(
            Sentence("that is more than %(max_points)s points; choose a wider bucket or a shorter time", max_points=MAX_POINTS),
            pointer="/bucket",
        )
    params = (scope.tenant_id, app_id, since, until)
    with db.snapshot():
        total = TrafficCounts(*map(int, db.rows(f"SELECT {_NUMBERS} {_FROM}", params)[0]))
        sql = f"SELECT (at - ?) / ?, {_NUMBERS} {_FROM} GROUP BY 1"
        by_index = {int(row[0]): TrafficCounts(*map(int, row[1:])) for row in db.rows(sql, (since, bucket, *params))}
        points = [(at, by_index.get(index, TrafficCounts())) for index, at in enumerate(range(since, until, bucket))]
        paths, referrers, statuses, agents = (_top(column, params) for column in ("path", "referrer", "status", "agent"))
    return Traffic(
        since=since, until=until, bucket=bucket, total=total, points=points, paths=paths, referrers=referrers, statuses=statuses,
        agents=agents,
    )


def _top(column: str, params: tuple[Any, ...]) -> dict[str, int]:
    condition = f"AND {column} <> ''" if column == "referrer" else ""
    sql = f"SELECT {_GROUP_BY.get(column, column)}, COUNT(*) {_FROM} {condition} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {TOP}"
    return {str(value): int(count) for value, count in db.rows(sql, params)}


def _choose_bucket(window: Window) -> int:
    if window.since >= window.until:
        raise InvalidRequest("since must lie before until", pointer="/since")
    if window.bucket is not None:
        if not MINUTE <= window.bucket <= WIDEST or window.bucket % MINUTE:
            raise InvalidRequest("bucket must be whole minutes, such as 5m, 1h or 1d, and at most a year", pointer="/bucket")
        return window.bucket
    return next((width for width in _BUCKETS if window.until - window.since <= width * _NICE_POINTS), DAY)
