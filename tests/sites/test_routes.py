"""Routes of WebApps: who may call them, what the process gets, and what visitors see of its output."""

import re
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.sites.route_shop import SAME, deploy, executions, wait_for

FORM = "application/x-www-form-urlencoded"
PAGE = {**SAME, "Accept": "text/html,application/xhtml+xml", "Content-Type": FORM}


def test_a_route_runs_its_process_as_the_app(running: Running, route_shop: httpx.Client, acme: httpx.Client) -> None:
    answer = route_shop.post("/api/orders", json={"name": "Ada", "quantity": 2})
    assert (answer.status_code, answer.json()) == (
        200, {"success": True, "data": {"stored": "Ada", "input": {"name": "Ada", "quantity": 2}}},
    )  # fmt: skip
    headers = {name: answer.headers[name] for name in ("cache-control", "x-robots-tag", "x-content-type-options", "content-type")}
    assert headers == {
        "cache-control": "no-store", "x-robots-tag": "noindex", "x-content-type-options": "nosniff",
        "content-type": "application/json",
    }  # fmt: skip
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not {"set-cookie", "access-control-allow-origin"} & set(answer.headers)
    request_id = answer.headers["x-request-id"]
    lines = wait_for(
        lambda: [each for each in list_logs(acme) if each.get("request_id") == request_id and each["source"] == "webapp"]
    )
    assert lines[0]["fields"].pop("ms") >= 0
    assert lines[0]["fields"] == {
        "webapp": "route-shop", "route": "/api/orders", "method": "POST", "status": 200, "visitor": "anonymous",
    }  # fmt: skip
    [execution] = [each for each in executions(acme) if each["execution_id"] == lines[0]["execution_id"]]
    assert execution["input"] == {"name": "Ada", "quantity": 2}


def list_logs(api: httpx.Client) -> list[dict[str, Any]]:
    return list(api.get("/api/v1/logs", params={"limit": 200, "source": "webapp"}).raise_for_status().json()["data"])


def test_the_input_is_mapped(route_shop: httpx.Client) -> None:
    answer = route_shop.put("/api/orders/7%20b", params={"q": "x y"}, json={"name": "Bob", "quantity": "no matter"})
    assert answer.json()["data"]["input"] == {"name": "Bob", "id": "7 b", "q": "x y"}
    response = route_shop.get("/api/find", params={"name": "Eve", "quantity": "3"})
    assert response.json()["data"]["input"] == {"name": "Eve", "quantity": 3}


def test_invalid_input_is_reported_and_nothing_runs(route_shop: httpx.Client, acme: httpx.Client) -> None:
    before = len(executions(acme))
    for body, pointer in (({"name": ""}, "/name"), ({"name": "x", "quantity": "2"}, "/quantity")):
        answer = route_shop.post("/api/orders", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["details"][0]["pointer"]) == (422, "validation_failed", pointer)
    for content, media, code in (
        (b"{", "application/json", "invalid_json"), (b"[" * 100 + b"]" * 100, "application/json", "payload_too_large"),
        (b'{"name": "' + b"x" * (1 << 20) + b'"}', "application/json", "payload_too_large"),
        (b"<a/>", "application/xml", "unsupported_media_type"), (b"[1]", "application/json", "validation_failed"),
        (b"name=%ff", FORM, "invalid_request"), (b"name=%00", FORM, "invalid_request"),
        (b"a=1&" * 1001, FORM, "invalid_request"), (b"--x", "multipart/form-data; boundary=x", "unsupported_media_type"),
    ):  # fmt: skip
        answer = route_shop.post("/api/orders", content=content, headers={"Content-Type": media})
        assert answer.json()["error"]["code"] == code, (content[:30], answer.text)
    assert len(executions(acme)) == before


def test_a_failure_reveals_no_internals(route_shop: httpx.Client) -> None:
    for name in ("crash", "pretend", "cookie"):
        answer = route_shop.post("/api/orders", json={"name": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "process_failed"), name
        assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
        assert "hunter2" not in answer.text
        assert not re.search(r"exe_|route-order|set-cookie", f"{answer.text}{dict(answer.headers)}")
    refused = route_shop.post("/api/orders", json={"name": "reject"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "rejected")
    assert refused.json()["error"]["message"] == "This is <sold out>"


def test_a_process_can_set_its_response(route_shop: httpx.Client) -> None:
    page = route_shop.post("/api/orders", json={"name": "page"})
    assert (page.status_code, page.text, page.headers["x-shop"]) == (201, "<b>hi</b>", "1")
    assert (page.headers["content-type"], page.headers["x-content-type-options"]) == ("text/html", "nosniff")
    away = route_shop.post("/api/orders", json={"name": "away"})
    assert (away.status_code, away.headers["location"]) == (303, "https://pay.example/x")


def test_a_plain_form_redirects_to_a_page(route_shop: httpx.Client, acme: httpx.Client) -> None:
    answer = route_shop.post("/api/orders", content="name=J%C3%B6rg+B&quantity=4", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/thanks.html")
    assert executions(acme)[0]["input"] == {"name": "Jörg B", "quantity": 4}
    refused = route_shop.post("/api/orders", content="name=reject", headers=PAGE)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert "This is &lt;sold out&gt;" in refused.text
    wrong = route_shop.post("/api/orders", content="name=Ada&quantity=many", headers=PAGE)
    assert (wrong.status_code, "<p>Quantity: " in wrong.text, "the process" in wrong.text) == (422, True, False)
    own = route_shop.post("/api/orders", content="name=page", headers=PAGE)
    assert (own.status_code, own.text) == (201, "<b>hi</b>")  # what the process says counts more than `then`
    response = route_shop.post("/api/orders", content="name=Ada", headers={**PAGE, "Accept": "application/json"})
    assert response.json()["data"]["stored"] == "Ada"


OWN, SIBLING = "http://route-shop--acme.content.localhost", "http://other--acme.content.localhost"
FOREIGN: list[tuple[dict[str, str], str, int]] = [
    ({"Sec-Fetch-Site": "same-origin"}, FORM, 200),
    ({"Sec-Fetch-Site": "same-site"}, FORM, 403),
    ({"Sec-Fetch-Site": "cross-site"}, FORM, 403),
    ({"Sec-Fetch-Site": "none"}, FORM, 403),
    ({"Sec-Fetch-Site": "same-site", "Origin": "OWN"}, FORM, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, FORM, 403),
    ({"Origin": "OWN"}, FORM, 200),
    ({"Origin": "OWN", "Cookie": "a=b"}, FORM, 200),
    ({"Origin": SIBLING}, FORM, 403),
    ({"Origin": SIBLING}, "application/json", 403),
    ({"Origin": "null"}, FORM, 403),
    ({"Origin": OWN.replace("http:", "https:")}, FORM, 403),
    ({"Origin": f"{OWN}.evil.example"}, FORM, 403),
    ({}, FORM, 403),
    ({}, "text/plain", 403),
    ({}, "application/json", 200),
    ({"Cookie": "__Host-gos_browser=x"}, "application/json", 403),
    ({"Cookie": "from=a sibling"}, "application/json", 403),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "media", "status"), FOREIGN)
def test_only_the_apps_own_pages_can_change_something(
    running: Running, stranger: httpx.Client, headers: dict[str, str], media: str, status: int
) -> None:
    resolved = {name: f"{OWN}{running.config.port_suffix}" if value == "OWN" else value for name, value in headers.items()}
    body = b"name=Ada" if media == FORM else b'{"name": "Ada"}'
    answer = stranger.post("/api/orders", content=body, headers={"Content-Type": media, **resolved})
    assert answer.status_code == status, answer.text
    if status == 403:
        assert answer.json()["error"]["code"] == "browser_call_refused"


def test_reading_is_allowed_for_the_app_and_for_links(stranger: httpx.Client) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for headers, status in (
        ({}, 200), (SAME, 200), ({"Sec-Fetch-Site": "none"}, 200), (link, 200), ({**link, "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": SIBLING}, 403),
    ):  # fmt: skip
        assert stranger.get("/api/find", params={"name": "Ada"}, headers=headers).status_code == status, headers


def test_other_methods_are_refused_and_files_stay_available(route_shop: httpx.Client) -> None:
    for method, path, allowed in (
        ("OPTIONS", "/api/orders", "POST"), ("DELETE", "/api/orders", "POST"), ("GET", "/api/orders", "POST"),
        ("HEAD", "/api/find", "GET"), ("GET", "/api/orders/7", "PUT"), ("POST", "/", "GET, HEAD"),
    ):  # fmt: skip
        answer = route_shop.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed), (method, path)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert route_shop.get("/somewhere").text == "<h1>Shop</h1>"


def test_a_rate_limit_is_enforced_with_retry_after(route_shop: httpx.Client) -> None:
    first, second, third = (route_shop.post("/api/few", json={"name": "Ada"}) for _ in range(3))
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
    assert third.json()["error"]["code"] == "rate_limited"
    assert 1 <= int(third.headers["retry-after"]) <= 300
    assert first.headers["ratelimit-policy"] == '"default";q=2;w=600'
    assert re.fullmatch(r'"default";r=0;t=\d+', third.headers["ratelimit"])
    assert route_shop.post("/api/orders", json={"name": "Ada"}).status_code == 200


def test_a_version_with_broken_routes_is_not_published(acme: httpx.Client) -> None:
    lost: list[dict[str, Any]] = [
        {"path": "/a", "method": "GET", "process": "route-none", "access": "public"},
            {"path": "/b", "entities": "route-none", "operations": ["list"], "access": "public"}]  # fmt: skip
    refused = deploy(acme, "route-lost", lost)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    messages = [each["message"] for each in refused.json()["error"]["details"]]
    assert "'route-none' is not published, which the route /a leads to" in messages[0]
    assert "no collection 'route-none', which the route /b leads to" in messages[1]
    version = acme.get("/api/v1/webapps/route-lost/versions/1").raise_for_status().json()["data"]
    assert version["routes"] == lost
    acme.delete("/api/v1/webapps/route-lost").raise_for_status()
