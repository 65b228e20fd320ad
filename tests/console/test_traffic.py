"""The traffic page of a WebApp: its figures, its request log by status and path, and its resource use."""

import re
from dataclasses import replace

import httpx
import pytest

from appliance.core import clock
from appliance.testing.running import Running
from appliance.webapps.traffic import HandledRequest
from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.console.test_documents import SignedIn

DAY = 86_400_000
HOSTILE = "/<script>alert(1)</script>"


@pytest.fixture
def shop(running: Running, acme: httpx.Client) -> str:
    """A WebApp with 55 requests for a file, a hostile one, a failed one three days ago and one 20 days ago."""
    name = fresh("traffic")
    acme.post("/api/v1/webapps", json={"id": name}).raise_for_status()
    now, log = clock.now_ms(), running.appliance.services.webapps.requests
    request = HandledRequest(
        "acme", name, now, "GET", "/file", 200, 1000, 2.5, "203.0.113.7", "curl/8", "", f"{name}--acme.localhost"
    )
    for number in range(55):
        log.add(replace(request, path="/file" if number else "/first"))
    log.add(replace(request, path=HOSTILE, status=404, agent="Mozilla/5.0 Firefox/140.0", referrer="https://search.example/"))
    log.add(replace(request, at=now - 3 * DAY, path="/broken", status=502))
    log.add(replace(request, at=now - 20 * DAY, path="/long-ago"))
    log.flush()
    return name


def page_of(browser: Browser, app: str, query: str = "", status: int = 200) -> str:
    answer = browser.get(browser.at("acme", f"/console/webapps/{app}/requests{query}"))
    assert answer.status_code == status
    return answer.text


def figures(page: str) -> dict[str, str]:
    return dict(re.findall(r"<div><dt>(\w+)</dt><dd[^>]*>([^<]+)</dd></div>", page))


def rows(page: str) -> list[str]:
    return re.findall(r'<td class="break"><code>([^<]+)</code>', page)


def test_clearing_the_path_keeps_the_status(signed_in: SignedIn, shop: str) -> None:
    page = page_of(signed_in("viewer@acme.test"), shop, "?path=/file&status=4xx")
    (clear,) = re.findall(r'<a class="button ghost" href="([^"]+)">Clear</a>', page)
    assert clear == f"/console/webapps/{shop}/requests?span=7d&amp;status=4xx"


def test_the_figures_of_an_app_are_those_of_the_chosen_period(signed_in: SignedIn, acme: httpx.Client, shop: str) -> None:
    viewer = signed_in("viewer@acme.test")
    assert f'href="/console/webapps/{shop}/requests"' in viewer.get(viewer.at("acme", f"/console/webapps/{shop}")).text
    week, day = page_of(viewer, shop), page_of(viewer, shop, "?span=24h")
    assert figures(week) == {"Visitors": "3", "Requests": "57", "Failed": "1", "Sent": "57 KB"}
    assert figures(day) == {"Visitors": "2", "Requests": "56", "Failed": "0", "Sent": "56 KB"}
    assert figures(page_of(viewer, shop, "?span=90d"))["Requests"] == "58"
    assert (week.count("</title></rect>"), day.count("</title></rect>")) == (7, 24)
    failures = re.findall(r'<td class="nowrap">[0-9-]{10}</td><td class="number">1</td><td class="number">1</td>', week)
    assert len(failures) == 1
    for value, count in (("/file", 54), ("search.example", 1), ("404", 1), ("Firefox", 1)):
        assert re.search(rf'<td class="break[^"]*">{value}</td><td class="number">{count}</td>', week), value
    usage = acme.get(f"/api/v1/webapps/{shop}").json()["data"]["usage"]
    assert f"<dt>Requests today</dt><dd>{usage['requests_today']}</dd>" in week
    assert "The operator has set no limits." in week


def test_the_log_is_filtered_by_status_and_path_and_paged(signed_in: SignedIn, shop: str) -> None:
    viewer = signed_in("viewer@acme.test")
    first = page_of(viewer, shop)
    assert "<script>alert" not in first
    paths = rows(first)
    assert (len(paths), "GET /broken" in paths) == (50, False)
    (following,) = re.findall(r'<a href="[^"?]+(\?[^"]+)"[^>]* rel="next">', first)
    second = page_of(viewer, shop, following.replace("&amp;", "&"))
    assert rows(second)[-2:] == ["GET /first", "GET /broken"]
    assert len(rows(second)) == 7
    assert rows(page_of(viewer, shop, "?status=4xx")) == ["GET /&lt;script&gt;alert(1)&lt;/script&gt;"]
    assert rows(page_of(viewer, shop, "?status=5xx&path=/bro*")) == ["GET /broken"]
    assert rows(page_of(viewer, shop, "?status=5xx&span=24h")) == []
    assert "Nothing matches your search" in page_of(viewer, shop, "?path=/nowhere")
    for wrong in ("?status=9xx", "?status=404", "?span=2h"):
        page_of(viewer, shop, wrong, 400)


def test_the_latest_errors_of_routes_show_their_cause(
    signed_in: SignedIn, running: Running, acme: httpx.Client, shop: str, greeting: str
) -> None:
    viewer = signed_in("viewer@acme.test")
    assert "Failed routes" not in page_of(viewer, shop)  # a file failed, no route
    response = acme.post(f"/api/v1/processes/{greeting}/execute?wait=30", json={"guest": "nobody"}).json()
    execution, log = response["data"]["execution_id"], running.appliance.services.webapps.requests
    now = clock.now_ms()
    request = HandledRequest("acme", shop, now, "POST", "/api/hello/7", 502, 90, 2.5, "203.0.113.7", "", "", "x.localhost")
    log.add(replace(request, route="/api/hello/:id", execution_id=execution))
    log.add(replace(request, at=request.at - 1, route="/api/bye", status=503))
    log.add(replace(request, at=request.at - 2, route="/api/refused", status=422))
    log.flush()
    page = page_of(viewer, shop)
    section = page.partition("Failed routes")[2].partition("</section>")[0]
    lines = [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in re.findall(r"<tr data-testid.*?</tr>", section, re.DOTALL)]
    assert lines[0].startswith(f"POST /api/hello/:id 502 nobody cannot be greeted {execution}")
    assert lines[1].startswith("POST /api/bye 503 View logs")
    assert len(lines) == 2
    assert f'href="/console/executions/{execution}"' in section


def test_requests_of_other_tenants_are_not_found(signed_in: SignedIn, shop: str) -> None:
    stranger = signed_in("owner@globex.test")
    assert stranger.get(stranger.at("globex", f"/console/webapps/{shop}/requests")).status_code == 404
