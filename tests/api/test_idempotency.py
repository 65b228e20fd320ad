"""Repeated requests get the first response, have one effect, and never block for ever."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.presence import open_presence
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.api.test_bodies import error

KEYS = "/api/v1/keys"
DAY = 24 * 3_600_000


@pytest.fixture
def once() -> dict[str, str]:
    """A header with a key that no other test uses."""
    return {"Idempotency-Key": fresh("once")}


def count_keys(client: httpx.Client) -> int:
    return int(client.get(KEYS, params={"count": "exact", "limit": 1}).json()["meta"]["total"])


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = clock.monotonic() + 30
    while not holds():
        assert clock.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)


def records(key: str, column: str = "state") -> list[Any]:
    return [row[0] for row in db.rows(f"SELECT {column} FROM idempotency WHERE key = ?", (key,))]  # noqa: S608


def test_a_repetition_gets_the_first_answer_without_its_secrets(acme: httpx.Client, once: dict[str, str]) -> None:
    before = count_keys(acme)
    first = acme.post(KEYS, json={"name": "n", "scopes": ["logs.read"]}, headers=once)
    second = acme.post(KEYS, json={"name": "n", "scopes": ["logs.read"]}, headers=once)
    assert (first.status_code, second.status_code) == (201, 201)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert "key" in first.json()["data"]
    assert "key" not in second.json()["data"]
    assert second.json()["data"]["id"] == first.json()["data"]["id"]
    assert count_keys(acme) == before + 1
    text = first.json()["data"]["key"]
    assert text not in str(db.rows("SELECT * FROM idempotency"))


def test_another_body_or_query_is_refused(ours: Resources, once: dict[str, str]) -> None:
    path = f"/api/v1/processes/{ours.once('process', ours.process)}/execute"
    first = ours.client.post(path, json={"a": 1}, headers=once)
    for body, query in (({"a": 2}, {}), ({"a": 1}, {"label": "x"})):
        error(ours.client.post(path, json=body, params=query, headers=once), 422, "idempotency_mismatch")
    again = ours.client.post(path, json={"a": 1}, headers=once)
    assert again.json()["data"]["execution_id"] == first.json()["data"]["execution_id"]


def test_a_key_counts_per_caller_path_and_method(
    running: Running, acme: httpx.Client, globex: httpx.Client, once: dict[str, str]
) -> None:
    body = {"name": "n", "scopes": ["logs.read"]}
    ids = {client.post(KEYS, json=body, headers=once).json()["data"]["id"] for client in (acme, globex)}
    with running.api("acme") as other:
        ids.add(other.post(KEYS, json=body, headers=once).json()["data"]["id"])
    first = next(iter(ids))
    assert len(ids) == 3
    rotated = acme.post(f"{KEYS}/{first}/rotate", json={}, headers=once)
    assert "idempotency-replayed" not in rotated.headers
    assert "idempotency-replayed" not in acme.get(KEYS, headers=once).headers


def test_an_error_is_replayed_and_leaves_nothing(acme: httpx.Client, once: dict[str, str]) -> None:
    body = {"operations": [{"op": "create", "collection": "none", "values": {}}]}
    first = acme.post("/api/v1/datapool/batch", json=body, headers=once)
    second = acme.post("/api/v1/datapool/batch", json=body, headers=once)
    assert first.status_code == second.status_code == 404 or first.status_code == second.status_code == 422
    assert first.content == second.content
    assert second.headers["idempotency-replayed"] == "true"


def test_a_failed_effect_is_rolled_back_but_its_response_is_stored(ours: Resources, once: dict[str, str]) -> None:
    collection = ours.collection()
    path = f"/api/v1/datapool/{collection}/entities"
    ours.client.post(path, json={"number": "1"})
    error(ours.client.post(path, json={"number": "1"}, headers=once), 422, "validation_failed")
    ours.client.delete(f"{path}/{ours.client.get(path).json()['data'][0]['id']}")
    assert ours.client.post(path, json={"number": "1"}, headers=once).status_code == 422
    assert ours.client.get(path).json()["data"] == []


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\tb"])
def test_a_wrong_key_is_refused(acme: httpx.Client, key: str) -> None:
    answer = acme.post(
        KEYS, json={"name": "n", "scopes": ["logs.read"]}, headers=[(b"Idempotency-Key", key.strip().encode() or b"")]
    )
    error(answer, 422, "validation_failed")


def test_twenty_at_once_have_one_effect(ours: Resources, once: dict[str, str]) -> None:
    collection = ours.collection()
    path = f"/api/v1/datapool/{collection}/entities"

    def post(number: int) -> int:
        with ours.running.client("acme.localhost", {"X-API-Key": ours.client.headers["x-api-key"]}) as client:
            return client.post(path, json={"number": "same"}, headers=once).status_code

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(post, range(20)))
    assert set(answers) <= {201, 409}
    assert 201 in answers
    assert len(ours.client.get(path).json()["data"]) == 1


class Gate:
    """A foreign system that answers when the test says so."""

    def __init__(self) -> None:
        self.arrived, self.go_on = threading.Event(), threading.Event()
        self.server = LoopbackServer()
        self.server.answers["/slow"] = self.answer
        self.calls = 0

    def answer(self, received: Received) -> Answer:
        self.calls += 1
        self.arrived.set()
        self.go_on.wait(20)
        return Answer(200, {"Content-Type": "application/json"}, b"{}")


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.go_on.set()
    gate.server.close()


def test_a_repetition_while_the_first_runs_is_refused(ours: Resources, gate: Gate, once: dict[str, str]) -> None:
    settings = {"base_url": gate.server.url, "retries": {"attempts": 1}}
    slug = fresh("gate")
    ours.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": settings})
    path = f"/api/v1/integrations/{slug}/execute"
    body = {"action": "post", "input": {"url": "/slow", "json": {}}}

    def post() -> httpx.Response:
        with ours.running.client("acme.localhost", {"X-API-Key": ours.client.headers["x-api-key"]}) as client:
            return client.post(path, json=body, headers=once)

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(post)
        assert gate.arrived.wait(20)
        error(post(), 409, "idempotency_in_flight")
        gate.go_on.set()
        assert first.result(20).status_code == 200
    again = post()
    assert (again.status_code, again.headers["idempotency-replayed"], gate.calls) == (200, "true", 1)
    assert again.json()["data"] == first.result().json()["data"]


def test_a_caller_who_leaves_does_not_block_the_next(ours: Resources, once: dict[str, str]) -> None:
    pausing = ours.once("pausing", lambda: ours.process(steps=[{"id": "pause", "wait": {"for": "1h"}}]))
    path = f"/api/v1/processes/{pausing}/execute?wait=30"
    caller = HTTPConnection("127.0.0.1", ours.running.config.server.port)
    newest = "SELECT id FROM execution WHERE process_id = ? AND status = 'waiting' ORDER BY created_at DESC LIMIT 1"
    before = db.rows(newest, (pausing,))  # of another test, which has the same process
    caller.request("POST", path, b"{}", {**ours.client.headers, **once, "Content-Type": "application/json"})
    wait_until(lambda: db.rows(newest, (pausing,)) not in ([], before))
    assert records(once["Idempotency-Key"])
    caller.close()
    wait_until(lambda: not records(once["Idempotency-Key"]))
    ((execution,),) = db.rows(newest, (pausing,))
    ours.client.post(f"/api/v1/processes/{pausing}/executions/{execution}/cancel")
    again = ours.client.post(path, json={}, headers=once)
    assert (again.status_code, again.json()["data"]["execution_id"], again.json()["data"]["status"]) == (
        200,
        execution,
        "cancelled",
    )


def test_after_a_day_a_key_is_new_again(acme: httpx.Client, once: dict[str, str]) -> None:
    body = {"name": "n", "scopes": ["logs.read"]}
    first = acme.post(KEYS, json=body, headers=once).json()["data"]["id"]
    db.write(lambda: db.execute("UPDATE idempotency SET created_at = created_at - ?", (DAY + 1,)))
    second = acme.post(KEYS, json=body | {"name": "other"}, headers=once)
    assert second.status_code == 201
    assert second.json()["data"]["id"] != first


def test_a_request_of_a_dead_process_is_taken_over(acme: httpx.Client, once: dict[str, str]) -> None:
    body = {"name": "n", "scopes": ["logs.read"]}
    key = once["Idempotency-Key"]
    acme.post(KEYS, json=body, headers=once)
    dead = "UPDATE idempotency SET state = 'running', answer = NULL, owner = 'wrk_dead' WHERE key = ?"
    db.write(lambda: db.execute(dead, (key,)))
    error(acme.post(KEYS, json=body | {"name": "x"}, headers=once), 422, "idempotency_mismatch")
    assert acme.post(KEYS, json=body, headers=once).status_code == 201
    assert records(key) == ["done"]


def test_a_request_of_a_live_process_is_not_taken_over(ours: Resources, acme: httpx.Client, once: dict[str, str]) -> None:
    body, key = {"name": "n", "scopes": ["logs.read"]}, once["Idempotency-Key"]
    acme.post(KEYS, json=body, headers=once)
    other = open_presence(ours.running.config.data / "workers")
    try:
        theirs = "UPDATE idempotency SET state = 'running', answer = NULL, owner = ? WHERE key = ?"
        db.write(lambda: db.execute(theirs, (other.instance, key)))
        before = count_keys(acme)
        error(acme.post(KEYS, json=body, headers=once), 409, "idempotency_in_flight")
        assert (count_keys(acme), records(key, "owner")) == (before, [other.instance])
    finally:
        other.close()
    assert acme.post(KEYS, json=body, headers=once).status_code == 201, "it has ended"


def test_an_execution_is_started_once_though_its_record_was_lost(ours: Resources, once: dict[str, str]) -> None:
    """As after a crash between the execution's commit and the answer's."""
    path = f"/api/v1/processes/{ours.once('process', ours.process)}/execute"
    first = ours.client.post(path, json={}, headers=once).json()["data"]["execution_id"]
    db.write(
        lambda: db.execute("UPDATE idempotency SET state = 'running', owner = 'wrk_dead' WHERE key = ?", (once["Idempotency-Key"],))
    )
    assert ours.client.post(path, json={}, headers=once).json()["data"]["execution_id"] == first


def test_a_server_or_connector_failure_is_not_stored(ours: Resources, once: dict[str, str]) -> None:
    settings = {"base_url": "http://127.0.0.1:9", "retries": {"attempts": 1}}
    slug = fresh("nobody")
    ours.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": settings})
    answer = ours.client.post(f"/api/v1/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/"}}, headers=once)
    assert answer.status_code >= 500
    assert records(once["Idempotency-Key"]) == []
