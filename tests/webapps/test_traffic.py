"""The request log of WebApps: what is stored and counted, who may read it, and quotas."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidRequest, NotFound, PayloadTooLarge, RateLimited
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import metrics
from appliance.sites.webapps import following
from appliance.tenants import service as tenants
from appliance.webapps.service import FileSpec, Limits, NewApp, NewVersion, WebApps
from appliance.webapps.traffic import anonymization, request_log
from appliance.webapps.traffic.daily_totals import DAY, DayTraffic, traffic_of_day
from appliance.webapps.traffic.quotas import Quotas
from appliance.webapps.traffic.request_log import HandledRequest, RequestLog
from appliance.webapps.traffic.statistics import RequestFilter, Window, list_requests, read_traffic

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0 Safari/537.36"
HOST = "shop--acme.content.localhost"
NOON = 1_750_000_000_000 // DAY * DAY + DAY // 2
SEEN = HandledRequest(
    "acme", "shop", NOON, "GET", "/", 200, 1000, 2.5, "203.0.113.77", FIREFOX, "https://search.example/?q=x", HOST
)
EVERYTHING = RequestFilter()


def log_of(*requests: HandledRequest, addresses: anonymization.Addresses = "truncated") -> RequestLog:
    log = RequestLog(addresses, Quotas(0, 0))
    for request in requests:
        log.add(request)
    log.flush()
    return log


def paths(scope: TenantScope, request_filter: RequestFilter = EVERYTHING) -> list[str]:
    return [row.path for row in list_requests(scope, "shop", request_filter, PageRequest()).items]


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        ("203.0.113.77", ("203.0.113.0", "203.0.113.77")),
        ("2001:db8:1:2::3", ("2001:db8:1::", "2001:db8:1:2::3")),
        ("::ffff:203.0.113.77", ("203.0.113.0", "203.0.113.77")),
        ("nobody", ("", "")),
        ("", ("", "")),
    ],
)
def test_addresses_are_stored_as_configured(address: str, stored: tuple[str, str]) -> None:
    assert (anonymization.stored_address(address, "truncated"), anonymization.stored_address(address, "full")) == stored
    assert anonymization.stored_address(address, "none") == ""


@pytest.mark.parametrize(
    ("agent", "family"),
    [
        (FIREFOX, "Firefox"), (CHROME, "Chrome"), (CHROME + " Edg/139.0", "Edge"), (CHROME + " OPR/120", "Opera"),
        (CHROME.replace("Chrome", "HeadlessChrome"), "Chrome"),
        ("Mozilla/5.0 (iPhone) AppleWebKit/605.1 Version/18.0 Mobile/15E148 Safari/604.1", "Safari"),
        ("Mozilla/5.0 (compatible; Googlebot/2.1)", "bot"), ("curl/8.5.0", "program"), ("", "other"), ("x" * 9000, "other"),
    ],
)  # fmt: skip
def test_only_the_browser_family_is_stored(agent: str, family: str) -> None:
    assert anonymization.agent_family(agent) == family


@pytest.mark.parametrize(
    ("referrer", "host"),
    [
        ("https://Search.example/a?b=secret", "search.example"),
        (f"http://{HOST}:8080/cart", ""),
        ("no address", ""),
        ("http://[", ""),
    ],
)
def test_only_the_referrer_host_is_stored(referrer: str, host: str) -> None:
    assert anonymization.referrer_host(referrer, HOST) == host


@BOTH
def test_requests_are_stored_for_the_tenant_of_the_app(webapps: WebApps, acme: TenantScope, globex: TenantScope) -> None:
    webapps.create_app(globex, NewApp("shop"))
    foreign, unknown = replace(SEEN, tenant="globex", path="/foreign"), replace(SEEN, app="no-such-app")
    routed = replace(SEEN, path="/api/\x00\udc00", route="/api/*", execution_id="exe_1", visitor_kind="user", at=NOON + 1)
    log_of(SEEN, foreign, unknown, routed)
    newest, oldest = list_requests(acme, "shop", EVERYTHING, PageRequest()).items
    expected = {
        "path": "/", "status": 200, "bytes": 1000, "ms": 2.5, "address": "203.0.113.0", "agent": "Firefox",
        "referrer": "search.example", "visitor_kind": "anonymous",
    }  # fmt: skip
    assert {name: getattr(oldest, name) for name in expected} == expected
    assert (newest.route, newest.execution_id, newest.visitor_kind) == ("/api/*", "exe_1", "user")
    assert newest.visitor == oldest.visitor
    assert paths(globex) == ["/foreign"]
    assert traffic_of_day("acme", "shop", NOON // DAY * DAY) == DayTraffic(2, 2000)
    with pytest.raises(NotFound):
        list_requests(acme, "no-such-app", EVERYTHING, PageRequest())
    with pytest.raises(NotFound):
        read_traffic(globex, "other", Window(0, 1))


def test_requests_are_found_by_status_path_and_time(webapps: WebApps, acme: TenantScope) -> None:
    requests = [("/", 200), ("/a", 404), ("/a/b", 403), ("/a%", 500)]
    log_of(*(replace(SEEN, path=path, status=status, at=NOON + index) for index, (path, status) in enumerate(requests)))
    assert paths(acme) == ["/a%", "/a/b", "/a", "/"]
    assert paths(acme, RequestFilter(status="4xx")) == ["/a/b", "/a"]
    assert paths(acme, RequestFilter(status="500", path="/a*")) == ["/a%"]
    assert paths(acme, RequestFilter(path="/a")) == ["/a"]
    assert paths(acme, RequestFilter(path="/a%*")) == ["/a%"]
    assert paths(acme, RequestFilter(since=NOON + 2)) == ["/a%", "/a/b"]
    first = list_requests(acme, "shop", EVERYTHING, PageRequest(limit=3))
    assert [row.path for row in list_requests(acme, "shop", EVERYTHING, PageRequest(3, first.next_cursor)).items] == ["/"]
    for wrong in ("4x", "xxx", "9xx", "²00"):
        with pytest.raises(InvalidRequest):
            paths(acme, RequestFilter(status=wrong))


@BOTH
def test_statistics_over_time(webapps: WebApps, acme: TenantScope) -> None:
    hour = 3_600_000
    log_of(
        SEEN,
        replace(SEEN, path="/cart", at=NOON + 1),
        replace(SEEN, address="198.51.100.1", status=503, at=NOON + hour, agent=CHROME, referrer=""),
        replace(SEEN, at=NOON + DAY, bytes=1 << 40),
    )
    day = read_traffic(acme, "shop", Window(NOON, NOON + 2 * hour, hour))
    assert [(at - NOON, each.requests, each.visitors, each.errors) for at, each in day.points] == [(0, 2, 1, 0), (hour, 1, 1, 1)]
    assert (day.total.requests, day.total.bytes, day.total.visitors) == (3, 3000, 2)
    assert (day.paths, day.statuses) == ({"/": 2, "/cart": 1}, {"200": 2, "503": 1})
    assert (day.referrers, day.agents) == ({"search.example": 2}, {"Firefox": 2, "Chrome": 1})
    whole = read_traffic(acme, "shop", Window(NOON, NOON + 2 * DAY))
    assert (whole.total.requests, whole.total.bytes) == (4, 3000 + (1 << 40))
    assert whole.total.visitors == 3  # who came again on the next day is another number
    nothing = read_traffic(acme, "shop", Window(0, hour, hour))
    assert (nothing.total.requests, nothing.total.bytes, len(nothing.points)) == (0, 0, 1)
    for wrong in (Window(5, 5), Window(0, hour, 1), Window(0, hour, 60_000 * 10**15), Window(0, DAY * 400, 60_000)):
        with pytest.raises(InvalidRequest):
            read_traffic(acme, "shop", wrong)


@BOTH
def test_followed_executions_count_as_one_page(webapps: WebApps, acme: TenantScope) -> None:
    followed = anonymization.FOLLOWED
    assert followed == following.PREFIX
    log_of(SEEN, replace(SEEN, path=f"{followed}one", at=NOON + 1), replace(SEEN, path=f"{followed}two", at=NOON + 2))
    assert paths(acme) == [anonymization.FOLLOWED_SHOWN] * 2 + ["/"]
    old = "UPDATE webapp_request SET path = ? WHERE at = ?"  # as stored by earlier releases
    db.write(lambda: db.execute(old, (f"{followed}old", NOON + 2)))
    day = read_traffic(acme, "shop", Window(NOON, NOON + 3_600_000))
    assert day.paths == {"/_gos/executions/<ticket>": 2, "/": 1}
    assert len(paths(acme, RequestFilter(path=anonymization.FOLLOWED_SHOWN))) == 2


def dropped() -> float:
    lines = metrics.render().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith("gos_webapp_requests_dropped_total ")), 0.0)


def test_excess_requests_are_dropped_and_counted(webapps: WebApps, acme: TenantScope) -> None:
    log = RequestLog("none", Quotas(0, 0), most_waiting=3)
    before = dropped()
    for index in range(5):
        log.add(replace(SEEN, path=f"/{index}", at=NOON + index))
    assert dropped() - before == 2
    log.flush()
    assert paths(acme) == ["/2", "/1", "/0"]


def test_requests_that_cannot_be_stored_stay_buffered(webapps: WebApps, acme: TenantScope) -> None:
    log = RequestLog("truncated", Quotas(0, 0))
    for index in range(3):
        log.add(replace(SEEN, path=f"/{index}", at=NOON + index))
    db.write(lambda: db.execute("ALTER TABLE webapp_request RENAME TO away"))
    with pytest.raises(Exception, match="webapp_request"):
        log.flush()
    db.write(lambda: db.execute("ALTER TABLE away RENAME TO webapp_request"))
    log.flush()
    log.flush()
    assert paths(acme) == ["/2", "/1", "/0"]


def test_requests_are_deleted_by_age_and_with_their_app(webapps: WebApps, acme: TenantScope, globex: TenantScope) -> None:
    webapps.create_app(globex, NewApp("shop"))
    now = clock.now_ms()
    log_of(SEEN, replace(SEEN, at=now), replace(SEEN, tenant="globex", at=now))
    assert request_log.purge(now - DAY) == 1
    assert len(paths(acme)) == 1
    assert db.rows("SELECT COUNT(*) FROM webapp_traffic") == [(2,)]
    webapps.delete_app(acme, "shop")
    tenants.delete_tenant("globex")
    assert db.rows("SELECT COUNT(*) FROM webapp_request") == db.rows("SELECT COUNT(*) FROM webapp_traffic") == [(0,)]


def test_the_salt_of_a_day_is_deleted_soon_after_it(webapps: WebApps) -> None:
    now = clock.now_ms()
    log_of(replace(SEEN, at=now - 2 * DAY))
    log_of(replace(SEEN, at=now - DAY), replace(SEEN, at=now))
    days = [row[0] for row in db.rows("SELECT day FROM webapp_salt ORDER BY day")]
    assert now // DAY * DAY in days
    assert now // DAY * DAY - 2 * DAY not in days


def test_requests_per_minute_are_limited() -> None:
    quotas = Quotas(2, 0)
    for _ in range(2):
        quotas.count("acme", "shop", NOON + 59_000)
    with pytest.raises(RateLimited) as refusal:
        quotas.count("acme", "shop", NOON + 59_000)
    assert refusal.value.headers == {"Retry-After": "1"}
    quotas.count("acme", "blog", NOON + 59_000)
    quotas.count("globex", "shop", NOON + 59_000)
    quotas.count("acme", "shop", NOON + 60_000)


def test_bytes_per_day_are_limited(webapps: WebApps) -> None:
    first, second = Quotas(0, 1900), Quotas(0, 2500)
    for quotas, unstored in ((first, 0), (second, 500)):
        quotas.count("acme", "shop", NOON)
        quotas.add_sent("acme", "shop", SEEN.bytes + unstored)
        log = RequestLog("none", quotas)
        log.add(SEEN)
        log.flush()
    first.count("acme", "shop", NOON)  # knows of its own thousand only
    with pytest.raises(RateLimited, match="a day"):
        second.count("acme", "shop", NOON)  # a thousand of each are stored, and 500 are not yet
    second.count("acme", "blog", NOON)
    second.count("acme", "shop", NOON + DAY)


def test_stored_bytes_are_limited(webapps: WebApps, blobs: Any, acme: TenantScope) -> None:
    strict = WebApps(blobs, Limits(100, 1 << 20, 1 << 18, stored_bytes=1000))
    one, other = FileSpec("a" * 64, 600), FileSpec("b" * 64, 600)
    strict.create_version(acme, "shop", NewVersion({"a": one, "again": one}))
    strict.create_version(acme, "shop", NewVersion({"b": one}))
    with pytest.raises(PayloadTooLarge, match="the limit is"):
        strict.create_version(acme, "shop", NewVersion({"a": other}))
    assert strict.stored_bytes(acme, "shop") == 600
