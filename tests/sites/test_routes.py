"""Routes of WebApps: who may call them, what the process gets, and what of its answer is told."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.solutions.archive import write_zip
from appliance.testing.running import Running

PATIENCE = 30.0
SAME: dict[str, str] = {"Sec-Fetch-Site": "same-origin"}
FORM = "application/x-www-form-urlencoded"
PAGE = {**SAME, "Accept": "text/html,application/xhtml+xml", "Content-Type": FORM}
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 40
CODE = """
export default async function (input, api) {
  if (input.name === "reject") throw Object.assign(new Error("This is <sold out>"), { code: "rejected" });
  if (input.name === "crash") throw new Error("the password of db-7 is hunter2");
  if (input.name === "pretend") throw Object.assign(new Error("hunter2"), { code: "rejected", failure_class: "connector" });
  if (input.name === "page") {
    return { $response: { status: 201, headers: { "Content-Type": "text/html", "X-Shop": "1" }, body: "<b>hi</b>" } };
  }
  if (input.name === "away") return { $response: { status: 303, headers: { Location: "https://pay.example/x" } } };
  if (input.name === "cookie") return { $response: { headers: { "Set-Cookie": "a=b" }, body: 1 } };
  const known = await api.datapool.create("route-orders", { name: input.name });
  return { stored: (await api.datapool.find("route-orders", known.id)).name, input };
}
"""
ORDER_INPUT = {
    "type": "object", "required": ["name"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1}, "quantity": {"type": "integer"}, "id": {"type": "string"},
        "by": {"type": "string"}, "photo": {"type": ["string", "array"]}, "q": {"type": "string"},
    },
}  # fmt: skip
PROCESSES: dict[str, dict[str, Any]] = {
    "route-order": {
        "input": ORDER_INPUT, "grants": {"datapool": {"route-orders": ["read", "write"]}},
        "steps": [{"id": "keep", "code": {"language": "javascript", "source": CODE}}],
    },
    "route-slow": {
        "steps": [{"id": "pause", "wait": {"event": "go"}}, {"id": "said", "rule": {"expression": "= {said: steps.pause}"}}]
    },
}  # fmt: skip
ROUTES: list[dict[str, Any]] = [
    {"path": "/api/orders", "method": "POST", "process": "route-order", "wait": 30, "access": "public", "then": "/thanks.html"},
    {"path": "/api/orders/:id", "method": "PUT", "process": "route-order", "wait": 30, "access": "public",
     "input": {"name": "$body.name", "id": "$path.id", "q": "$query.q", "by": "$visitor.email"}},
    {"path": "/api/find", "method": "GET", "process": "route-order", "wait": 30, "access": "public"},
    {"path": "/api/slow", "method": "POST", "process": "route-slow", "wait": 0.2, "access": "public"},
    {"path": "/api/photos", "method": "POST", "process": "route-order", "wait": 30, "access": "public",
     "upload": {"folder": "from/visitors", "max_mb": 0.1, "types": ["image/*"]}},
    {"path": "/api/few", "method": "POST", "process": "route-order", "wait": 30, "access": "public",
     "rate_limit": {"requests": 2, "window_s": 600}},
    {"path": "/api/mine", "method": "GET", "process": "route-order", "access": "signed_in"},
    {"path": "/api/ours", "method": "POST", "process": "route-order", "access": "member"},
]  # fmt: skip


def deploy(api: httpx.Client, app: str, routes: list[dict[str, Any]], *, publish: bool = True) -> httpx.Response:
    """A new app with these routes; the answer to publishing it."""
    api.post("/api/v1/webapps", json={"id": app}).raise_for_status()
    files = {"app.yaml": json.dumps({"routes": routes, "spa": True}).encode(), "public/index.html": b"<h1>Shop</h1>"}
    path = f"/api/v1/webapps/{app}/versions"
    api.post(path, content=write_zip(files), headers={"Content-Type": "application/zip"}).raise_for_status()
    return api.post(f"{path}/1/publish", json={})


def build(api: httpx.Client) -> None:
    """The processes and the collection that the routes lead to."""
    fields = [{"name": "name", "type": "text"}]
    api.post("/api/v1/datapool", json={"name": "route-orders", "fields": fields}).raise_for_status()
    for name, definition in PROCESSES.items():
        api.put(f"/api/v1/processes/{name}", json={"id": name, **definition}).raise_for_status()
        api.post(f"/api/v1/processes/{name}/publish", json={}).raise_for_status()


@pytest.fixture(scope="module")
def shop(running: Running, acme: httpx.Client, globex: httpx.Client) -> Iterator[httpx.Client]:
    """A browser on the app of acme; an app of the same name is globex's."""
    for api in (acme, globex):
        build(api)
        deploy(api, "route-shop", ROUTES).raise_for_status()
    with running.client("route-shop--acme.content.localhost", SAME) as client:
        yield client


@pytest.fixture
def stranger(running: Running, shop: httpx.Client) -> Iterator[httpx.Client]:
    """Somebody who is no browser."""
    with running.client("route-shop--acme.content.localhost") as client:
        yield client


def executions(api: httpx.Client, process: str = "route-order") -> list[dict[str, Any]]:
    found = api.get(f"/api/v1/processes/{process}/executions", params={"limit": 500}).raise_for_status()
    return list(found.json()["data"])


def wait_for(look: Callable[[], Any]) -> Any:
    ends = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < ends, "it never came"
        threading.Event().wait(0.05)
    return found


def go_on(acme: httpx.Client, execution_id: str, word: str) -> None:
    """The event that the slow process waits for has come."""
    path = f"/api/v1/processes/route-slow/executions/{execution_id}"

    def token() -> str:
        waits = (acme.get(path).raise_for_status().json()["data"].get("waiting_for") or {}).get("waits") or []
        return waits[0]["token"] if waits else ""

    acme.post(f"{path}/resume", json={"token": wait_for(token), "input": word}).raise_for_status()


def begin_slow(shop: httpx.Client, acme: httpx.Client, headers: dict[str, str] | None = None) -> tuple[httpx.Response, str]:
    """The 202 of a slow route, and the id that only the API tells."""
    before = {each["execution_id"] for each in executions(acme, "route-slow")}
    answer = shop.post("/api/slow", json={}, headers=headers)
    assert answer.status_code == 202, answer.text
    [new] = [each["execution_id"] for each in executions(acme, "route-slow") if each["execution_id"] not in before]
    return answer, new


def test_a_route_runs_its_process_as_the_app(running: Running, shop: httpx.Client, acme: httpx.Client) -> None:
    answer = shop.post("/api/orders", json={"name": "Ada", "quantity": 2})
    assert (answer.status_code, answer.json()) == (
        200, {"success": True, "data": {"stored": "Ada", "input": {"name": "Ada", "quantity": 2}}},
    )  # fmt: skip
    told = {name: answer.headers[name] for name in ("cache-control", "x-robots-tag", "x-content-type-options", "content-type")}
    assert told == {
        "cache-control": "no-store", "x-robots-tag": "noindex", "x-content-type-options": "nosniff",
        "content-type": "application/json",
    }  # fmt: skip
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not {"set-cookie", "access-control-allow-origin"} & set(answer.headers)
    request_id = answer.headers["x-request-id"]
    lines = wait_for(lambda: [each for each in logged(acme) if each["request_id"] == request_id and each["source"] == "webapp"])
    assert lines[0]["fields"].pop("ms") >= 0
    assert lines[0]["fields"] == {
        "app": "route-shop", "route": "/api/orders", "method": "POST", "status": 200, "visitor": "anonymous",
    }  # fmt: skip
    [execution] = [each for each in executions(acme) if each["execution_id"] == lines[0]["execution_id"]]
    assert execution["input"] == {"name": "Ada", "quantity": 2}


def logged(api: httpx.Client) -> list[dict[str, Any]]:
    return list(api.get("/api/v1/logs", params={"limit": 200, "source": "webapp"}).raise_for_status().json()["data"])


def test_the_input_is_mapped(shop: httpx.Client) -> None:
    answer = shop.put("/api/orders/7%20b", params={"q": "x y"}, json={"name": "Bob", "quantity": "no matter"})
    assert answer.json()["data"]["input"] == {"name": "Bob", "id": "7 b", "q": "x y"}
    found = shop.get("/api/find", params={"name": "Eve", "quantity": "3"})
    assert found.json()["data"]["input"] == {"name": "Eve", "quantity": 3}


def test_what_does_not_fit_the_process_is_told_and_nothing_runs(shop: httpx.Client, acme: httpx.Client) -> None:
    before = len(executions(acme))
    for body, pointer in (({"name": ""}, "/name"), ({"name": "x", "quantity": "2"}, "/quantity")):
        answer = shop.post("/api/orders", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["details"][0]["pointer"]) == (422, "validation_failed", pointer)
    for content, media, code in (
        (b"{", "application/json", "invalid_json"), (b"[" * 100 + b"]" * 100, "application/json", "payload_too_large"),
        (b'{"name": "' + b"x" * (1 << 20) + b'"}', "application/json", "payload_too_large"),
        (b"<a/>", "application/xml", "unsupported_media_type"), (b"[1]", "application/json", "validation_failed"),
        (b"name=%ff", FORM, "invalid_request"), (b"name=%00", FORM, "invalid_request"),
        (b"a=1&" * 1001, FORM, "invalid_request"), (b"--x", "multipart/form-data; boundary=x", "unsupported_media_type"),
    ):  # fmt: skip
        answer = shop.post("/api/orders", content=content, headers={"Content-Type": media})
        assert answer.json()["error"]["code"] == code, (content[:30], answer.text)
    assert len(executions(acme)) == before


def test_a_failure_keeps_its_reasons_to_itself(shop: httpx.Client) -> None:
    for name in ("crash", "pretend", "cookie"):
        answer = shop.post("/api/orders", json={"name": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "process_failed"), name
        assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
        assert "hunter2" not in answer.text
        assert not re.search(r"exe_|route-order|set-cookie", f"{answer.text}{dict(answer.headers)}")
    refused = shop.post("/api/orders", json={"name": "reject"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "rejected")
    assert refused.json()["error"]["message"] == "This is <sold out>"


def test_a_process_may_say_how_it_is_answered(shop: httpx.Client) -> None:
    page = shop.post("/api/orders", json={"name": "page"})
    assert (page.status_code, page.text, page.headers["x-shop"]) == (201, "<b>hi</b>", "1")
    assert (page.headers["content-type"], page.headers["x-content-type-options"]) == ("text/html", "nosniff")
    away = shop.post("/api/orders", json={"name": "away"})
    assert (away.status_code, away.headers["location"]) == (303, "https://pay.example/x")


def test_a_plain_form_leads_to_a_page(shop: httpx.Client, acme: httpx.Client) -> None:
    answer = shop.post("/api/orders", content="name=J%C3%B6rg+B&quantity=4", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/thanks.html")
    assert executions(acme)[0]["input"] == {"name": "Jörg B", "quantity": 4}
    refused = shop.post("/api/orders", content="name=reject", headers=PAGE)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert "This is &lt;sold out&gt;" in refused.text
    asked = shop.post("/api/orders", content="name=Ada", headers={**PAGE, "Accept": "application/json"})
    assert asked.json()["data"]["stored"] == "Ada"


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
    ({"Cookie": "__Host-gos-visit=x"}, "application/json", 403),
    ({"Cookie": "from=a sibling"}, "application/json", 403),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "media", "status"), FOREIGN)
def test_only_the_app_itself_changes_something(
    running: Running, stranger: httpx.Client, headers: dict[str, str], media: str, status: int
) -> None:
    given = {name: f"{OWN}{running.config.port_suffix}" if value == "OWN" else value for name, value in headers.items()}
    body = b"name=Ada" if media == FORM else b'{"name": "Ada"}'
    answer = stranger.post("/api/orders", content=body, headers={"Content-Type": media, **given})
    assert answer.status_code == status, answer.text
    if status == 403:
        assert answer.json()["error"]["code"] == "browser_call_refused"


def test_reading_is_for_the_app_and_for_links(stranger: httpx.Client) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for headers, status in (
        ({}, 200), (SAME, 200), ({"Sec-Fetch-Site": "none"}, 200), (link, 200), ({**link, "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": SIBLING}, 403),
    ):  # fmt: skip
        assert stranger.get("/api/find", params={"name": "Ada"}, headers=headers).status_code == status, headers


def test_other_methods_are_refused_and_files_stay_files(shop: httpx.Client) -> None:
    for method, path, allowed in (
        ("OPTIONS", "/api/orders", "POST"), ("DELETE", "/api/orders", "POST"), ("GET", "/api/orders", "POST"),
        ("HEAD", "/api/find", "GET"), ("GET", "/api/orders/7", "PUT"), ("POST", "/", "GET, HEAD"),
    ):  # fmt: skip
        answer = shop.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed), (method, path)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert shop.get("/somewhere").text == "<h1>Shop</h1>"


def test_who_is_not_signed_in_is_told(shop: httpx.Client) -> None:
    for method, path in (("GET", "/api/mine"), ("POST", "/api/ours")):
        answer = shop.request(method, path, json={"name": "x"} if method == "POST" else None)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "sign_in_required")


def test_a_rate_limit_holds_and_says_when_to_come_back(shop: httpx.Client) -> None:
    first, second, third = (shop.post("/api/few", json={"name": "Ada"}) for _ in range(3))
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
    assert third.json()["error"]["code"] == "rate_limited"
    assert 1 <= int(third.headers["retry-after"]) <= 300
    assert first.headers["ratelimit-policy"] == '"default";q=2;w=600'
    assert re.fullmatch(r'"default";r=0;t=\d+', third.headers["ratelimit"])
    assert shop.post("/api/orders", json={"name": "Ada"}).status_code == 200


def cookie_of(answer: httpx.Response) -> str:
    """As a browser on `localhost` would send it back: it is Secure."""
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(r"__Host-gos-visit=[\w-]{32}; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax", cookie)
    return str(cookie.partition(";")[0])


def test_what_takes_longer_is_followed_by_the_browser_that_asked(
    running: Running, shop: httpx.Client, stranger: httpx.Client, acme: httpx.Client
) -> None:
    answer, execution_id = begin_slow(shop, acme)
    follow = answer.json()["data"]["follow"]
    assert answer.json() == {"success": True, "data": {"status": "running", "follow": follow}}
    assert answer.headers["location"] == follow
    assert execution_id not in answer.text
    mine = {"Cookie": cookie_of(answer)}
    wait_for(lambda: shop.get(follow, headers=mine).json()["data"]["status"] == "waiting")
    assert shop.get(follow, headers=mine).headers["retry-after"] == "1"
    another = cookie_of(begin_slow(shop, acme)[0])
    for headers in ({}, {"Cookie": another}, {"Cookie": f"{mine['Cookie']}; {another}"}):
        assert shop.get(follow, headers=headers).status_code == 404
    for path in (
        f"{follow}A",
        follow[:-1],
        f"/_gos/executions/{execution_id}",
        "/_gos/executions/",
        "/_gos/executions/" + "A" * 60,
    ):
        assert shop.get(path, headers=mine).status_code == 404, path
    for host in ("route-shop--globex", "route-other--acme"):
        if host == "route-other--acme":
            deploy(acme, "route-other", []).raise_for_status()
        with running.client(f"{host}.content.localhost", SAME) as elsewhere:
            assert elsewhere.get(follow, headers=mine).status_code == 404
    foreign = {**mine, "Sec-Fetch-Site": "same-site"}
    assert stranger.get(follow, headers=foreign).status_code == 403
    assert shop.post(follow, headers=mine).status_code == 405
    assert "set-cookie" not in shop.post("/api/slow", json={}, headers=mine).headers
    go_on(acme, execution_id, "at last")
    done = wait_for(lambda: [data for data in [shop.get(follow, headers=mine).json()["data"]] if data["status"] == "succeeded"])
    assert done == [{"status": "succeeded", "follow": follow, "output": {"said": "at last"}}]


def read_events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    event = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield event, json.loads(line.removeprefix("data: "))


def test_progress_is_streamed_until_the_end_and_resumed(shop: httpx.Client, acme: httpx.Client) -> None:
    answer, execution_id = begin_slow(shop, acme)
    follow = answer.json()["data"]["follow"]
    asked = {"Cookie": cookie_of(answer), "Accept": "text/event-stream"}
    seen: list[str] = []
    with shop.stream("GET", follow, headers=asked) as stream:
        assert (stream.headers["content-type"], stream.headers["cache-control"]) == ("text/event-stream", "no-store")
        for event, _ in read_events(stream):
            seen.append(event)
            if event == "waiting":
                break
    assert seen in (["waiting"], ["running", "waiting"])
    with shop.stream("GET", follow, headers={**asked, "Last-Event-ID": "waiting"}) as stream:
        go_on(acme, execution_id, "go")
        told = list(read_events(stream))
    assert [event for event, _ in told if event != "running"] == ["succeeded"]
    assert told[-1][1]["output"] == {"said": "go"}
    assert shop.get(follow, headers={**asked, "Last-Event-ID": "succeeded"}).status_code == 204


def test_uploads_become_documents(shop: httpx.Client, acme: httpx.Client) -> None:
    files = [("photo", ("../../a.png", PNG, "text/html")), ("photo", ("b.png", PNG + b"1", "image/png"))]
    answer = shop.post("/api/photos", data={"name": "Ada"}, files=files)
    assert answer.status_code == 200, answer.text
    ids = answer.json()["data"]["input"]["photo"]
    for document_id, name in zip(ids, ("a.png", "b.png"), strict=True):
        document = acme.get(f"/api/v1/documents/{document_id}").raise_for_status().json()["data"]
        assert (document["name"], document["folder"], document["media_type"]) == (name, "from/visitors", "image/png")
        assert document["created_by"] == "webapp:route-shop"
    parts = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    body = parts % (b"name", b"", b"Ada") + parts % (b"photo", b'; filename=""\r\nContent-Type: application/octet-stream', b"")
    chosen = shop.post("/api/photos", content=body + b"--x--\r\n", headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert chosen.json()["data"]["input"] == {"name": "Ada"}


def test_uploads_that_are_not_taken_leave_nothing(running: Running, shop: httpx.Client, acme: httpx.Client) -> None:
    def stored() -> int:
        return int(acme.get("/api/v1/documents", params={"count": "exact"}).raise_for_status().json()["meta"]["total"])

    before = stored()
    picture = ("a.png", PNG, "image/png")
    many = [("photo", (f"{number}.png", PNG, "image/png")) for number in range(11)]
    for files, fields, code in (
        ([("photo", ("a.png", b"<script>alert(1)</script>", "image/png"))], {"name": "x"}, "unsupported_media_type"),
        ([("photo", ("a.png", PNG + b"0" * 110_000, "image/png"))], {"name": "x"}, "payload_too_large"),
        (many, {"name": "x"}, "payload_too_large"),
        ([("photo", picture)], {"name": ""}, "validation_failed"),
        ([("photo", picture)], {"photo": "x", "name": "x"}, "validation_failed"),
        ([("photo", picture)], {"name": "x" * ((1 << 20) + 1)}, "payload_too_large"),
    ):  # fmt: skip
        answer = shop.post("/api/photos", data=fields, files=files)
        assert answer.json()["error"]["code"] == code, answer.text
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    for body in (
        b"--x\r\n\r\n",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--\r\n",
        b"{}",
        b"--x" + b"\r\nA: b" * 5000,
    ):
        assert shop.post("/api/photos", content=body, headers=broken).json()["error"]["code"] == "invalid_request", body[:40]
    assert stored() == before
    assert list((running.config.data / "blobs" / "incoming").iterdir()) == []


def test_a_version_whose_routes_lead_nowhere_is_not_published(acme: httpx.Client) -> None:
    lost: list[dict[str, Any]] = [
        {"path": "/a", "method": "GET", "process": "route-none", "access": "public"},
            {"path": "/b", "entities": "route-none", "operations": ["list"], "access": "public"}]  # fmt: skip
    refused = deploy(acme, "route-lost", lost)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    messages = [each["message"] for each in refused.json()["error"]["details"]]
    assert "'route-none' is not published, which the route /a leads to" in messages[0]
    assert "no collection 'route-none', which the route /b leads to" in messages[1]
    shown = acme.get("/api/v1/webapps/route-lost/versions/1").raise_for_status().json()["data"]
    assert shown["routes"] == lost
    acme.delete("/api/v1/webapps/route-lost").raise_for_status()
