"""/api/v1/integrations over HTTP: the catalogue, settings without secrets, actions, the record of calls."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.testing.running import Running

BASE = "/api/v1/integrations"
_numbers = itertools.count(1)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answer("/", body=b"{}", Content_Type="application/json")
    server.answers["/orders"] = echo
    yield server
    server.close()


def echo(received: Received) -> Answer:
    return Answer(201, {"Content-Type": "application/json"}, received.body or b"null")


@pytest.fixture
def erp(acme: httpx.Client, server: LoopbackServer) -> str:
    """The path of an integration with the loopback server."""
    body = {
        "slug": f"erp-{next(_numbers)}",
        "connector": "http",
        "settings": {"base_url": server.url, "auth": {"kind": "bearer", "token": "canary-token"}, "retries": {"attempts": 1}},
    }
    answer = acme.post(BASE, json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{BASE}/{body['slug']}"
    assert "canary" not in answer.text
    return str(answer.headers["location"])


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        threading.Event().wait(0.05)


def data(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["data"]


def error(answer: httpx.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def post_order(client: httpx.Client, erp: str, key: str = "", **more: Any) -> httpx.Response:
    body = {"action": "post", "input": {"url": "/orders", "json": {"number": "1"}, **more}}
    return client.post(f"{erp}/execute", json=body, headers={"Idempotency-Key": key} if key else {})


def test_the_catalogue_shows_actions_and_the_schema_of_settings(acme: httpx.Client) -> None:
    [http] = [connector for connector in data(acme.get("/api/v1/connectors")) if connector["name"] == "http"]
    assert http["title"] == "HTTP"
    details = data(acme.get("/api/v1/connectors/http"))
    assert details["settings_schema"]["properties"]["auth"]["properties"]["token"]["secret"] is True
    assert {action["name"]: action["effect"] for action in details["actions"]}["post"] == "write"
    assert error(acme.get("/api/v1/connectors/nope"), 404)["code"] == "not_found"


def test_an_integration_is_listed_read_changed_and_deleted(acme: httpx.Client, erp: str) -> None:
    answer = acme.get(erp)
    assert data(answer)["settings"]["auth"]["token"].keys() == {"sealed", "updated_at"}
    assert erp.rpartition("/")[2] in [row["slug"] for row in data(acme.get(BASE, params={"limit": 500}))]
    etag = answer.headers["etag"]
    changed = acme.patch(erp, json={"name": "The ERP", "settings": {"timeout_s": 5}}, headers={"If-Match": etag})
    assert data(changed)["name"] == "The ERP"
    assert data(changed)["settings"]["timeout_s"] == 5
    stale = acme.patch(erp, json={"name": "Late"}, headers={"If-Match": etag})
    assert error(stale, 412)["code"] == "version_conflict"
    assert data(acme.delete(erp)) == {"deleted": erp.rpartition("/")[2]}
    error(acme.get(erp), 404)


def test_settings_are_refused_with_every_problem(acme: httpx.Client) -> None:
    body = {"slug": "bad", "connector": "http", "settings": {"base_url": "ftp://x", "surprise": 1}}
    refused = error(acme.post(BASE, json=body), 422)
    assert {detail["pointer"] for detail in refused["details"]} == {"/settings/base_url", "/settings/surprise"}
    error(acme.post(BASE, json={**body, "unknown": 1}), 422)
    error(acme.get(f"{BASE}/bad"), 404)


def test_a_sealed_secret_does_not_follow_a_changed_address(acme: httpx.Client, erp: str) -> None:
    refused = error(acme.patch(erp, json={"settings": {"base_url": "https://evil.example"}}), 422)
    assert refused["details"][0]["pointer"] == "/settings/auth/token"


def test_a_connection_test_reports_its_result(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    assert data(acme.post(f"{erp}/test"))["ok"] is True
    server.answer("/", 401)
    check = data(acme.post(f"{erp}/test"))
    assert (check["ok"], check["error_class"]) == (False, "auth_error")
    assert data(acme.get(erp))["last_test"]["ok"] is False


def test_an_action_is_executed_and_recorded(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    result = data(post_order(acme, erp, "order-1"))
    assert (result["status"], result["effect"], result["recorded"]) == ("succeeded", "write", False)
    assert result["output"]["body"] == {"number": "1"}
    assert data(post_order(acme, erp, "order-1"))["execution_id"] == result["execution_id"]
    [received] = server.received
    assert received.headers["authorization"] == "Bearer canary-token"
    call = data(acme.get(result["links"]["self"]))
    assert (call["status"], call["outcome"], call["action"]) == ("succeeded", "done", "post")
    assert [row["execution_id"] for row in data(acme.get(f"{erp}/executions"))] == [result["execution_id"]]
    assert data(acme.get(f"{erp}/executions", params={"status": "failed"})) == []
    assert "canary" not in acme.get(result["links"]["self"]).text


def test_a_preview_sends_nothing(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    body = {"action": "delete", "input": {"url": "/orders"}, "mode": "preview"}
    preview = data(acme.post(f"{erp}/execute", json=body))
    assert (preview["status"], preview["effect"], preview["recorded"]) == ("previewed", "idempotent", False)
    assert preview["preview"]["input"] == {"url": "/orders"}
    [request] = preview["preview"]["requests"]
    assert (request["method"], request["url"]) == ("DELETE", f"{server.url}/orders")
    assert ["authorization", "Bearer [redacted]"] in [[name.lower(), value] for name, value in request["headers"]]
    assert server.received == []
    assert data(acme.get(f"{erp}/executions")) == []


def test_a_refusal_of_the_foreign_system_is_422_and_its_failure_502(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    for status, code, error_class in ((409, 422, "rejected"), (503, 502, "transient_error"), (429, 502, "rate_limited")):
        server.answer("/orders", status, b"why")
        failed = error(post_order(acme, erp), code)
        assert failed["code"] == "connector_failed"
        assert failed["details"][0]["code"] == failed["error_class"] == error_class
        assert failed["foreign"] == {"status": status, "body": "why"}


def test_invalid_input_or_an_unknown_action_is_refused(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    assert error(post_order(acme, erp, surprise=1), 422)["details"][0]["pointer"] == "/input/surprise"
    body = {"action": "steal", "input": {}}
    assert error(acme.post(f"{erp}/execute", json=body), 422)["details"][0]["pointer"] == "/action"
    assert server.received == []


def test_a_write_of_unknown_outcome_waits_for_a_person(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    server.answer("/orders", 500)
    failed = error(post_order(acme, erp, "order-2"), 502)
    assert failed["outcome"] == "unknown"
    again = error(post_order(acme, erp, "order-2"), 502)
    assert again["details"][0]["code"] == "outcome_unknown"
    assert len(server.received) == 1
    [waiting] = data(acme.get(f"{erp}/executions", params={"status": "waiting"}))
    assert waiting["execution_id"] == failed["call_id"]
    assert error(acme.delete(erp), 409)["code"] == "conflict"
    settled = acme.post(f"{waiting['links']['self']}/settle", json={"outcome": "done", "output": {"status": 201}})
    assert data(settled)["status"] == "succeeded"
    assert data(post_order(acme, erp, "order-2"))["output"] == {"status": 201}
    assert len(server.received) == 1


def test_a_refused_call_is_retried_and_found_in_the_monitor(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    server.answer("/orders", 409, b"not yet")
    first = error(post_order(acme, erp, "order-3"), 422)["call_id"]
    server.answers["/orders"] = echo
    queued = acme.post(f"{erp}/executions/{first}/retry")
    assert (data(queued, 202)["retry_of"], queued.headers["location"]) == (first, data(queued, 202)["links"]["self"])
    wait_for(lambda: data(acme.get(queued.headers["location"]))["status"] == "succeeded")
    again = data(acme.get(queued.headers["location"]))
    assert again["traffic"] == {
        "hosts": [server.url.removeprefix("http://")], "requests": 1, "sent_bytes": 14, "received_bytes": 14,
    }  # fmt: skip
    keys = [request.headers["idempotency-key"] for request in server.received]
    assert (len(keys), len(set(keys))) == (2, 1), "the foreign system sees one key"
    assert data(acme.get(f"{erp}/executions/{first}"))["retried_as"] == again["execution_id"]
    assert error(acme.post(f"{erp}/executions/{first}/retry"), 409)["code"] == "conflict"
    slug = erp.rpartition("/")[2]
    calls = data(acme.get("/api/v1/logs/calls", params={"integration": slug, "outcome": "not_done", "action": "post"}))
    assert [call["execution_id"] for call in calls] == [first]
    later = {"integration": slug, "created_after": again["created_at"]}
    assert [call["execution_id"] for call in data(acme.get("/api/v1/logs/calls", params=later))] == [again["execution_id"]]
    assert error(acme.get("/api/v1/logs/calls", params={"created_after": "soon"}), 422)["details"][0]["pointer"] == "/created_after"


def test_concurrency_is_set_per_integration(acme: httpx.Client, erp: str) -> None:
    assert data(acme.get(erp))["concurrency"] == 16
    assert data(acme.patch(erp, json={"concurrency": 3}))["concurrency"] == 3
    assert data(acme.patch(erp, json={"name": "Same"}))["concurrency"] == 3
    for wrong in (0, 65, "four"):
        assert error(acme.patch(erp, json={"concurrency": wrong}), 422)["details"][0]["pointer"] == "/concurrency"


def test_an_asynchronous_call_is_made_soon(acme: httpx.Client, erp: str, server: LoopbackServer) -> None:
    arrived = server.expect("/orders")
    body = {"action": "post", "input": {"url": "/orders", "json": {}}}
    queued = acme.post(f"{erp}/execute", params={"async": "true"}, json=body)
    assert data(queued, 202)["status"] in ("queued", "running")
    assert queued.headers["location"] == queued.json()["data"]["links"]["self"]
    assert arrived.wait(10)


def test_a_forbidden_address_is_refused_with_its_code(acme: httpx.Client) -> None:
    slug = f"metadata-{next(_numbers)}"
    body = {"slug": slug, "connector": "http", "settings": {"base_url": "http://169.254.169.254/latest"}}
    data(acme.post(BASE, json=body), 201)
    refused = acme.post(f"{BASE}/{slug}/execute", json={"action": "get", "input": {"url": "/meta-data"}})
    assert error(refused, 403)["code"] == "address_not_allowed"
    assert data(acme.post(f"{BASE}/{slug}/test"))["error_class"] == "address_not_allowed"


def test_integrations_of_another_tenant_are_not_found(globex: httpx.Client, erp: str) -> None:
    for answer in (
        globex.get(erp),
        globex.patch(erp, json={"name": "Mine"}),
        globex.delete(erp),
        globex.post(f"{erp}/test"),
        post_order(globex, erp),
        globex.get(f"{erp}/executions"),
    ):
        assert error(answer, 404)["code"] == "not_found"


def test_scopes_are_needed(running: Running, erp: str) -> None:
    with running.api("acme", ["integrations.read"]) as reader:
        data(reader.get(erp))
        assert error(post_order(reader, erp), 403)["scope"] == "integrations.execute"
        assert error(reader.delete(erp), 403)["scope"] == "integrations.write"
