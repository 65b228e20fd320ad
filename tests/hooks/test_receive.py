"""Inbound webhooks over HTTP: stored once before the response, without revealing which paths exist."""

import hmac
import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from appliance.core import clock
from appliance.core.database import db
from appliance.testing.running import Running

SECRET = "whsec_" + "c2VjcmV0" * 4


class Builder:
    """Publishes processes with a webhook in the tenant acme."""

    def __init__(self, api: httpx.Client) -> None:
        self.api = api
        self.ask("PUT", "/secrets/orders_hook", {"value": SECRET})

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self.api.request(method, f"/api/v1{path}", json=body, **options)
        assert answer.is_success, answer.text
        return answer.json()["data"]

    def publish(self, verify: dict[str, Any], mapping: Any = None, schema: Any = None) -> str:
        """A process with a webhook; its id is the path."""
        name = f"hook-{secrets.token_hex(4)}"
        webhook = {"path": name, "verify": verify} | ({} if mapping is None else {"input": mapping})
        steps = [{"id": "seen", "rule": {"expression": "= input"}}]
        self.ask("PUT", f"/processes/{name}", {"id": name, "input": schema, "steps": steps, "triggers": [{"webhook": webhook}]})
        self.ask("POST", f"/processes/{name}/publish", {})
        return name

    def executions(self, process_id: str) -> list[Any]:
        return list(self.ask("GET", f"/processes/{process_id}/executions"))

    def firings(self, process_id: str) -> list[Any]:
        return list(self.ask("GET", f"/processes/{process_id}/triggers/webhook/firings"))


@pytest.fixture
def builder(acme: httpx.Client) -> Builder:
    return Builder(acme)


@pytest.fixture
def sender(running: Running) -> Any:
    with running.client("acme.localhost") as client:
        yield client


def sign(body: str, delivery: str = "msg_1", *, ago: timedelta = timedelta(0)) -> dict[str, str]:
    signed_at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) - ago
    signature = Webhook(SECRET).sign(delivery, signed_at, body)
    stamp = {"webhook-timestamp": str(int(signed_at.timestamp())), "webhook-signature": signature}
    return {"webhook-id": delivery, "content-type": "application/json", **stamp}


STANDARD = {"kind": "standard-webhooks", "secret": "= secrets.orders_hook"}


def test_a_delivery_returns_the_execution_it_started(builder: Builder, sender: httpx.Client) -> None:
    path = builder.publish(STANDARD)
    body = json.dumps({"order": 7})
    headers = sign(body) | {"x-event-type": "order.created", "authorization": "Bearer x", "cookie": "a=b", "x-api-token": "t"}
    answer = sender.post(f"/hooks/{path}?a=1&b=2&b=3", content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    assert set(answer.json()["data"]) == {"execution_id"}
    execution = builder.ask("GET", f"/processes/{path}/executions/{answer.json()['data']['execution_id']}")
    payload = execution["input"]
    assert (payload["body"], payload["raw"], payload["raw_encoding"]) == ({"order": 7}, body, "text")
    assert (payload["query"], payload["delivery_id"], payload["path"]) == ({"a": "1", "b": ["2", "3"]}, "msg_1", path)
    header_names = set(payload["headers"])
    assert {"x-event-type", "content-type", "webhook-id"} <= header_names
    assert not header_names & {"authorization", "cookie", "x-api-token", "webhook-signature", "host", "x-forwarded-for"}
    [firing] = builder.firings(path)
    assert (firing["status"], firing["key"], firing["execution_id"]) == ("started", "msg_1", execution["execution_id"])


def test_a_repeated_delivery_starts_one_execution(builder: Builder, sender: httpx.Client) -> None:
    path = builder.publish(STANDARD)
    body = json.dumps({"order": 8})

    def send(_: int) -> tuple[int, str]:
        answer = httpx.post(f"{sender.base_url}/hooks/{path}", content=body, headers=sign(body) | {"host": "acme.localhost"})
        return answer.status_code, answer.json()["data"]["execution_id"]

    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(send, range(16)))
    assert len(answers) == 1
    assert len(builder.executions(path)) == 1


def test_every_invalid_signature_gets_the_same_answer(builder: Builder, sender: httpx.Client) -> None:
    path = builder.publish(STANDARD)
    body = json.dumps({"order": 9})
    good = sign(body)
    tries: list[tuple[str, dict[str, str]]] = [
        (body, {}),
        (body, {name: value for name, value in good.items() if name != "webhook-signature"}),
        (body, sign(body, ago=timedelta(minutes=6))),
        (body, sign(body, ago=-timedelta(minutes=6))),
        (body + " ", good),
        (body, {**good, "webhook-id": "msg_2"}),
    ]
    same = {"x-request-id": "same"}
    answers = [sender.post(f"/hooks/{path}", content=content, headers=headers | same) for content, headers in tries]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["error"]["code"] == "invalid_signature"
    assert builder.executions(path) == []
    line_counts = db.rows("SELECT count(*) FROM log_line WHERE process_id = ? AND source = 'trigger'", (path,))
    assert line_counts == [(1,)], "strangers write one line a minute at most"


def test_signed_content_does_not_come_back_under_another_delivery_id(builder: Builder, sender: httpx.Client) -> None:
    path = builder.publish({"kind": "github", "secret": "= secrets.orders_hook"})
    body = b'{"action": "opened"}'
    signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()

    def send(delivery: str) -> httpx.Response:
        headers = {"x-hub-signature-256": signature, "x-github-delivery": delivery}
        return sender.post(f"/hooks/{path}", content=body, headers=headers)

    assert [send("one").status_code, send("one").status_code, send("two").status_code] == [202, 202, 401]
    assert len(builder.executions(path)) == 1


def test_an_unknown_path_a_paused_process_and_another_tenant_get_the_same_answer(
    builder: Builder, sender: httpx.Client, running: Running
) -> None:
    path = builder.publish({"kind": "none"})
    assert sender.post(f"/hooks/{path}", json={}).status_code == 202
    builder.ask("POST", f"/processes/{path}/pause")
    same = {"x-request-id": "same"}
    with running.client("globex.localhost") as other, running.client("localhost") as base:
        answers = [
            sender.post(f"/hooks/{path}", json={}, headers=same), sender.post("/hooks/unheard-of", json={}, headers=same),
            other.post(f"/hooks/{path}", json={}, headers=same), base.post(f"/hooks/{path}", json={}, headers=same),
        ]  # fmt: skip
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    builder.ask("POST", f"/processes/{path}/resume-triggers")
    assert sender.post(f"/hooks/{path}", json={}).status_code == 202


def test_a_mapping_builds_the_input_and_a_mismatch_is_recorded(builder: Builder, sender: httpx.Client) -> None:
    schema = {"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}
    verify = {"kind": "header", "secret": "= secrets.orders_hook", "header": "X-Token", "delivery_header": "X-Delivery"}
    path = builder.publish(verify, {"order": "= trigger.body.order"}, schema=schema)
    token = {"x-token": SECRET, "x-delivery": "d1"}
    bad = sender.post(f"/hooks/{path}", json={"order": "seven"}, headers=token)
    assert (bad.status_code, bad.json()["error"]["code"]) == (422, "validation_failed")
    [firing] = builder.firings(path)
    assert (firing["status"], firing["error"]["code"]) == ("failed", "validation_failed")
    [trigger] = builder.ask("GET", f"/processes/{path}/triggers")
    assert (trigger["failed_in_row"], trigger["path"]) == (1, f"/hooks/{path}")
    good = sender.post(f"/hooks/{path}", json={"order": 7}, headers=token)
    assert good.status_code == 202, "the sender may mend it and send it again"
    [firing] = builder.firings(path)
    assert (firing["status"], firing["execution_id"]) == ("started", good.json()["data"]["execution_id"])
    assert builder.ask("GET", f"/processes/{path}/executions/{firing['execution_id']}")["input"] == {"order": 7}


def test_a_missing_secret_refuses_deliveries_and_is_a_failure(builder: Builder, sender: httpx.Client) -> None:
    path = builder.publish({"kind": "header", "secret": "= secrets.never_set", "header": "X-Token"})
    assert sender.post(f"/hooks/{path}", json={}, headers={"x-token": ""}).status_code == 401
    [trigger] = builder.ask("GET", f"/processes/{path}/triggers")
    assert trigger["last_error"]["code"] == "secret_missing"
    failures = builder.ask("GET", "/logs/failures")
    assert [each["code"] for each in failures if each["process_id"] == path] == ["secret_missing"]


def test_a_path_belongs_to_one_process_of_a_tenant(builder: Builder, globex: httpx.Client) -> None:
    path = builder.publish({"kind": "none"})
    draft = {
        "id": "second-owner", "steps": [{"id": "a", "rule": {"expression": "= 1"}}],
        "triggers": [{"webhook": {"path": path, "verify": {"kind": "none"}}}],
    }  # fmt: skip
    builder.ask("PUT", "/processes/second-owner", draft)
    answer = builder.api.post("/api/v1/processes/second-owner/publish", json={})
    assert (answer.status_code, answer.json()["error"]["details"][0]["pointer"]) == (422, "/triggers/0/webhook/path")
    [problem] = builder.ask("POST", "/processes/second-owner/validate")["problems"]
    assert (problem["code"], problem["pointer"]) == ("path_taken", "/triggers/0/webhook/path")
    Builder(globex).ask("PUT", "/processes/second-owner", draft)
    assert globex.post("/api/v1/processes/second-owner/publish", json={}).is_success


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", "text/plain", ""])
def test_any_body_is_accepted(builder: Builder, sender: httpx.Client, content_type: str) -> None:
    path = builder.publish({"kind": "none"}, {"body": "= trigger.body", "raw": "= trigger.raw", "how": "= trigger.raw_encoding"})
    bodies = [b"", b"{", b"[" * 5000 + b"]" * 5000, b'{"a": "\\ud800"}', b"\xff\x00", b"a=1&a=2", b'{"a": NaN}', b'"text"']
    for body in bodies:
        answer = sender.post(f"/hooks/{path}", content=body, headers={"content-type": content_type})
        assert answer.status_code == 202, (body[:20], answer.text)
    too_big = sender.post(f"/hooks/{path}", content=b"x" * (1 << 20) + b"x", headers={"content-type": content_type})
    assert too_big.status_code == 413
    assert len(builder.executions(path)) == len(bodies)


def test_only_post_is_accepted(builder: Builder, sender: httpx.Client) -> None:
    path = builder.publish({"kind": "none"})
    assert sender.get(f"/hooks/{path}").status_code == sender.get("/hooks/unheard-of").status_code == 405


def test_delivery_execution_and_wake_up_are_one_transaction(
    builder: Builder, sender: httpx.Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = builder.publish({"kind": "none", "delivery_header": "x-delivery"})

    def fail(*_: Any) -> None:
        raise RuntimeError("the disk went away")

    with monkeypatch.context() as broken:
        broken.setattr(running.services.processes.triggers.firings, "_enqueue", fail)
        assert sender.post(f"/hooks/{path}", json={}, headers={"x-delivery": "d1"}).status_code == 500
    assert builder.executions(path) == []
    assert builder.firings(path) == []
    assert sender.post(f"/hooks/{path}", json={}, headers={"x-delivery": "d1"}).status_code == 202
    assert db.rows("SELECT count(*) FROM firing WHERE process_id = ?", (path,)) == [(1,)]
