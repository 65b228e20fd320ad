"""What came to a WebApp: its requests one by one, and their numbers over time."""

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

from .describing import FOLLOWED, FOLLOWED_SHOWN
from .models import RequestRow

MAX_POINTS = 1_000
TOP = 20
WIDEST = 366 * DAY
_NICE_POINTS = 120
_BUCKETS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY)
# Of the requests in question: all, bytes, answers from 500 on, and visitors, each counted anew every day.
_NUMBERS = "COUNT(*), COALESCE(SUM(bytes), 0), COUNT(CASE WHEN status >= 500 THEN 1 END), COUNT(DISTINCT visitor)"
# What is counted together; tickets in paths of before they were left out are left out here.
_COUNTED = {"path": f"CASE WHEN SUBSTR(path, 1, {len(FOLLOWED)}) = '{FOLLOWED}' THEN '{FOLLOWED_SHOWN}' ELSE path END"}
_OF = "FROM webapp_request WHERE tenant_id = ? AND app_id = ? AND at >= ? AND at < ?"


@dataclass(frozen=True)
class RequestFilter:
    """Which requests: `status` is one (404) or a class (4xx); `path` is one, or with a final `*` all that begin so; `of_routes`:
    only what a route answered."""

    status: str | None = None
    path: str | None = None
    since: int | None = None
    of_routes: bool = False


@dataclass(frozen=True)
class Window:
    """[since, until) in milliseconds; `bucket` in milliseconds, None chooses one that draws well."""

    since: int
    until: int
    bucket: int | None = None


@dataclass(frozen=True)
class Numbers:
    """How many requests, bytes and answers from 500 on, and how many visitors, each counted anew every day."""

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    visitors: int = 0


@dataclass(frozen=True)
class Traffic:
    """One `Numbers` per bucket, empty ones included; the most frequent paths, referrers, statuses and browsers."""

    since: int
    until: int
    bucket: int
    total: Numbers
    points: list[tuple[int, Numbers]]
    paths: Mapping[str, int]
    referrers: Mapping[str, int]
    statuses: Mapping[str, int]
    agents: Mapping[str, int]


def list_requests(scope: TenantScope, app_id: str, wanted: RequestFilter, page: PageRequest) -> Page[RequestRow]:
    """The requests that match, newest first; NotFound."""
    scope.get(WebAppRow, id=app_id)
    query = scope.select(RequestRow).where(RequestRow.app_id == app_id)
    if wanted.status is not None:
        least, most = _statuses(wanted.status)
        query = query.where(RequestRow.status >= least, RequestRow.status <= most)
    path = f"{FOLLOWED}*" if wanted.path == FOLLOWED_SHOWN else wanted.path
    if path is not None and path.endswith("*"):
        beginning = path[:-1]
        query = query.where(fn.SUBSTR(RequestRow.path, 1, len(beginning)) == beginning)
    elif path is not None:
        query = query.where(RequestRow.path == path)
    if wanted.since is not None:
        query = query.where(RequestRow.at >= wanted.since)
    if wanted.of_routes:
        query = query.where(RequestRow.route.is_null(False))
    found: Page[RequestRow] = paginate(query, page, {"at": RequestRow.at, "id": RequestRow.id}, default="-at")
    return found


def _statuses(text: str) -> tuple[int, int]:
    if text.isascii() and text.isdigit() and len(text) == 3:
        return int(text), int(text)
    if len(text) == 3 and text[0] in "12345" and text[1:] == "xx":
        return int(text[0]) * 100, int(text[0]) * 100 + 99
    raise InvalidRequest("status is one, such as 404, or a class, such as 4xx", pointer="/status")


def read_traffic(scope: TenantScope, app_id: str, window: Window) -> Traffic:
    """The numbers of a window; NotFound, InvalidRequest for an empty or too finely divided one."""
    scope.get(WebAppRow, id=app_id)
    bucket = _choose_bucket(window)
    since, until = window.since // bucket * bucket, -(-window.until // bucket) * bucket
    if (until - since) // bucket > MAX_POINTS:
        raise InvalidRequest(
            Sentence("that is more than %(max_points)s points; ask for a wider bucket or less time", max_points=MAX_POINTS),
            pointer="/bucket",
        )
    asked = (scope.tenant_id, app_id, since, until)
    with db.snapshot():
        total = Numbers(*map(int, db.rows(f"SELECT {_NUMBERS} {_OF}", asked)[0]))
        sql = f"SELECT (at - ?) / ?, {_NUMBERS} {_OF} GROUP BY 1"
        found = {int(row[0]): Numbers(*map(int, row[1:])) for row in db.rows(sql, (since, bucket, *asked))}
        points = [(at, found.get(index, Numbers())) for index, at in enumerate(range(since, until, bucket))]
        paths, referrers, statuses, agents = (_top(column, asked) for column in ("path", "referrer", "status", "agent"))
    return Traffic(since, until, bucket, total, points, paths, referrers, statuses, agents)


def _top(column: str, asked: tuple[Any, ...]) -> dict[str, int]:
    named = f"AND {column} <> ''" if column == "referrer" else ""
    sql = f"SELECT {_COUNTED.get(column, column)}, COUNT(*) {_OF} {named} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {TOP}"
    return {str(value): int(count) for value, count in db.rows(sql, asked)}


def _choose_bucket(window: Window) -> int:
    if window.since >= window.until:
        raise InvalidRequest("since must lie before until", pointer="/since")
    if window.bucket is not None:
        if not MINUTE <= window.bucket <= WIDEST or window.bucket % MINUTE:
            raise InvalidRequest("bucket must be whole minutes, such as 5m, 1h or 1d, and a year at most", pointer="/bucket")
        return window.bucket
    return next((width for width in _BUCKETS if window.until - window.since <= width * _NICE_POINTS), DAY)
