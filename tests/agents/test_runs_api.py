"""Runs over REST, on the running appliance, with a model on loopback: started, followed, listed, cancelled."""

import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from appliance.core import clock
from appliance.testing.running import Running
from tests.agents.model_server import Answer, Call, ModelServer, script, serving
from tests.api.resources import fresh
from tests.governance.ruling import put_rules

ALLOW = {"id": "allow", "effect": "allow", "reason": "in this test"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving(script("done")) as opened:
        yield opened


@pytest.fixture
def api(running: Running) -> Iterator[httpx.Client]:
    with running.api("acme") as opened:
        yield opened


def make_agent(running: Running, api: httpx.Client, server: ModelServer, **more: object) -> str:
    """An agent of acme whose model is this server and whose tools are all allowed."""
    name = fresh("runner")
    profile = {"kind": "openai", "model": "small", "base_url": server.url}
    api.put(f"/api/v1/llm-profiles/{name}", json=profile).raise_for_status()
    definition = {"id": name, "model": name, "instructions": "Do it.", **more}
    api.put(f"/api/v1/agents/{name}", json=definition).raise_for_status()
    put_rules(running.tenant("acme"), {**ALLOW, "subject": {"agents": [name]}}, name=name)
    return name


def wait_finished(api: httpx.Client, agent: str, run_id: str) -> dict[str, object]:
    pause, ends = threading.Event(), clock.monotonic() + 30
    while clock.monotonic() < ends:
        results: dict[str, object] = api.get(f"/api/v1/agents/{agent}/runs/{run_id}").json()["data"]
        if results["status"] in ("succeeded", "failed", "cancelled"):
            return results
        pause.wait(0.05)
    raise TimeoutError(str(results))


def events(api: httpx.Client, path: str, last: str | None = None) -> list[tuple[int, str, dict[str, object]]]:
    """The stream until its end."""
    headers = {"Last-Event-ID": last} if last else {}
    text = api.get(path, headers=headers, timeout=60).text
    results = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            results.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return results


def test_a_run_is_started_followed_and_read(running: Running, api: httpx.Client, server: ModelServer) -> None:
    server.turn = script(Call("query_entities", {"collection": "nowhere"}), "done")
    agent = make_agent(running, api, server, tools=["query_entities"])
    started = api.post(f"/api/v1/agents/{agent}/runs", json={"input": {"order": 7}, "tainted_by": ["mail"]})
    assert started.json()["data"]["tainted_by"] == ["mail"]
    assert started.status_code == 202
    run_id = started.json()["data"]["run_id"]
    own = f"/api/v1/agents/{agent}/runs/{run_id}"
    assert started.headers["Location"] == own
    stream = events(api, f"{own}/events")
    run = wait_finished(api, agent, run_id)
    assert (run["status"], run["output"]) == ("succeeded", "done")
    assert run["usage"] == {"turns": 2, "tool_calls": 1, "input_tokens": 200, "output_tokens": 40, "cost": 0.0}
    assert [kind for _, kind, _ in stream] == ["asked", "answered", "called", "returned", "asked", "answered", "ended"]
    assert [number for number, _, _ in events(api, f"{own}/events", last="5")] == [6, 7]
    trace = api.get(f"{own}/trace").json()["data"]
    assert [(each["number"], each["kind"]) for each in trace] == [(number, kind) for number, kind, _ in stream]
    assert trace[3]["data"]["error"]["code"] == "not_found"
    assert "message" not in trace[1]["data"]
    assert [each["run_id"] for each in api.get(f"/api/v1/agents/{agent}/runs?status=succeeded").json()["data"]] == [run_id]
    assert '{"order": 7}' in server.requests[0].messages[-1].text


def test_a_repeated_start_is_the_same_run(running: Running, api: httpx.Client, server: ModelServer) -> None:
    agent = make_agent(running, api, server)
    key = {"Idempotency-Key": fresh("key")}
    one, two = (api.post(f"/api/v1/agents/{agent}/runs", json={"input": "x"}, headers=key) for _ in range(2))
    assert one.json()["data"]["run_id"] == two.json()["data"]["run_id"]
    wait_finished(api, agent, one.json()["data"]["run_id"])
    assert len(server.requests) == 1


def test_a_run_in_progress_is_cancelled(running: Running, api: httpx.Client, server: ModelServer) -> None:
    hold = threading.Event()
    server.turn = script(Answer(calls=[Call("query_entities", {"collection": "nowhere"})], hold=hold), "never")
    agent = make_agent(running, api, server, tools=["query_entities"])
    run_id = api.post(f"/api/v1/agents/{agent}/runs", json={"input": "x"}).json()["data"]["run_id"]
    pause, ends = threading.Event(), clock.monotonic() + 30
    while not server.requests and clock.monotonic() < ends:
        pause.wait(0.02)
    try:
        result = api.post(f"/api/v1/agents/{agent}/runs/{run_id}/cancel")
        assert (result.status_code, result.json()["data"]["is_cancelling"]) == (200, True)
        assert api.delete(f"/api/v1/agents/{agent}").status_code == 409
    finally:
        hold.set()
    assert wait_finished(api, agent, run_id)["status"] == "cancelled"
    assert api.post(f"/api/v1/agents/{agent}/runs/{run_id}/cancel").status_code == 409
    assert api.delete(f"/api/v1/agents/{agent}").status_code == 200


def test_an_agent_without_a_model_fails_and_says_so(running: Running, api: httpx.Client) -> None:
    name = fresh("runner")
    api.put(f"/api/v1/agents/{name}", json={"id": name, "model": "missing", "instructions": "x"}).raise_for_status()
    run_id = api.post(f"/api/v1/agents/{name}/runs", json={"input": "x"}).json()["data"]["run_id"]
    run = wait_finished(api, name, run_id)
    assert run["status"] == "failed"
    assert "missing" in run["error"]["message"]  # type: ignore[index]


def test_invalid_bodies_are_refused(running: Running, api: httpx.Client, server: ModelServer) -> None:
    agent = make_agent(running, api, server)
    for body in ({}, {"input": ""}, {"input": 3}, {"input": "x", "colour": "red"}):
        assert api.post(f"/api/v1/agents/{agent}/runs", json=body).status_code == 422, body
    assert api.post(f"/api/v1/agents/{agent}/runs", json={"input": "x", "version": 9}).status_code == 404
