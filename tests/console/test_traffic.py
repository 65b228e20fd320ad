"""The page of what came to a WebApp: its numbers, its log by status and path, and what it uses up."""

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
    """A WebApp that was asked for a file 55 times, for something hostile, failed three days ago and was asked 20 days ago."""
    name = fresh("traffic")
    acme.post("/api/v1/webapps", json={"id": name}).raise_for_status()
    now, log = clock.now_ms(), running.appliance.services.requests
    asked = HandledRequest(
        "acme", name, now, "GET", "/file", 200, 1000, 2.5, "203.0.113.7", "curl/8", "", f"{name}--acme.localhost"
    )
    for number in range(55):
        log.add(replace(asked, path="/file" if number else "/first"))
    log.add(replace(asked, path=HOSTILE, status=404, agent="Mozilla/5.0 Firefox/140.0", referrer="https://search.example/"))
    log.add(replace(asked, at=now - 3 * DAY, path="/broken", status=502))
    log.add(replace(asked, at=now - 20 * DAY, path="/long-ago"))
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


def test_the_numbers_of_an_app_are_those_of_the_chosen_time(signed_in: SignedIn, acme: httpx.Client, shop: str) -> None:
    viewer = signed_in("viewer@acme.test")
    assert f'href="/console/webapps/{shop}/requests"' in viewer.get(viewer.at("acme", f"/console/webapps/{shop}")).text
    week, day = page_of(viewer, shop), page_of(viewer, shop, "?span=24h")
    assert figures(week) == {"Visitors": "3", "Requests": "57", "Failed": "1", "Sent": "57 KB"}
    assert figures(day) == {"Visitors": "2", "Requests": "56", "Failed": "0", "Sent": "56 KB"}
    assert figures(page_of(viewer, shop, "?span=90d"))["Requests"] == "58"
    assert (week.count("</title></rect>"), day.count("</title></rect>")) == (7, 24)
    failing = re.findall(r'<td class="nowrap">[0-9-]{10}</td><td class="number">1</td><td class="number">1</td>', week)
    assert len(failing) == 1
    for value, count in (("/file", 54), ("search.example", 1), ("404", 1), ("Firefox", 1)):
        assert re.search(rf'<td class="break[^"]*">{value}</td><td class="number">{count}</td>', week), value
    usage = acme.get(f"/api/v1/webapps/{shop}").json()["data"]["usage"]
    assert f"<dt>Requests today</dt><dd>{usage['requests_today']}</dd>" in week
    assert "The operator has set no limits." in week


def test_the_log_is_read_by_status_and_path_and_page_by_page(signed_in: SignedIn, shop: str) -> None:
    viewer = signed_in("viewer@acme.test")
    first = page_of(viewer, shop)
    assert "<script>alert" not in first
    found = rows(first)
    assert (len(found), "GET /broken" in found) == (50, False)
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


def test_the_last_errors_of_routes_tell_why(
    signed_in: SignedIn, running: Running, acme: httpx.Client, shop: str, greeting: str
) -> None:
    viewer = signed_in("viewer@acme.test")
    assert "Failed routes" not in page_of(viewer, shop)  # a file failed, no route
    begun = acme.post(f"/api/v1/processes/{greeting}/execute?wait=30", json={"guest": "nobody"}).json()
    execution, log = begun["data"]["execution_id"], running.appliance.services.requests
    asked = HandledRequest("acme", shop, clock.now_ms(), "POST", "/api/hello/7", 502, 90, 2.5, "203.0.113.7", "", "", "x.localhost")
    log.add(replace(asked, route="/api/hello/:id", execution_id=execution))
    log.add(replace(asked, at=asked.at - 1, route="/api/bye", status=503))
    log.add(replace(asked, at=asked.at - 2, route="/api/refused", status=422))
    log.flush()
    page = page_of(viewer, shop)
    shown = page.partition("Failed routes")[2].partition("</section>")[0]
    told = [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in re.findall(r"<tr data-testid.*?</tr>", shown, re.DOTALL)]
    assert told[0].startswith(f"POST /api/hello/:id 502 nobody cannot be greeted {execution}")
    assert told[1].startswith("POST /api/bye 503 View logs")
    assert len(told) == 2
    assert f'href="/console/executions/{execution}"' in shown


def test_requests_of_others_are_not_there(signed_in: SignedIn, shop: str) -> None:
    stranger = signed_in("owner@globex.test")
    assert stranger.get(stranger.at("globex", f"/console/webapps/{shop}/requests")).status_code == 404
