"""Tests of processes and samples over HTTP."""

from typing import Any

import httpx
import pytest

from tests.processes.test_api import BASE, data, error
from tests.processes.world import code, rule

BODY = "api.log.info('looking', {n: input.n}); return {n: input.n, id: (await api.datapool.create('none-such', {a: 1})).id};"


@pytest.fixture
def address(acme: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A draft that is not published."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:55].rstrip("-")
    steps = [code("a", BODY), rule("b", "= [steps.a.n, steps.a.id, null]")]
    assert acme.put(f"{BASE}/{name}", json={"steps": steps, "grants": {"datapool": {"none-such": ["write"]}}}).is_success
    return f"{BASE}/{name}"


def test_a_draft_is_tested_with_mocks(acme: httpx.Client, address: str) -> None:
    mocks = {"datapool.create/none-such": {"output": {"id": "ent_1"}}, "datapool.query": {"output": 1}}
    test_run = data(acme.post(f"{address}/test", json={"input": {"n": 3}, "mocks": mocks}))
    assert (test_run["status"], test_run["version"], test_run["step_count"]) == ("succeeded", "draft", 2)
    assert test_run["output"] == [3, "ent_1", None]
    call = {"step": "a", "path": "a", "method": "datapool.create", "args": ["none-such", {"a": 1}], "effect": "write",
            "answered_by": "mock", "ok": True, "answer": {"id": "ent_1"}}  # fmt: skip
    assert test_run["effects"] == test_run["steps"][0]["calls"] == [call]
    (line,) = test_run["steps"][0]["logs"]
    assert (line["level"], line["message"], line["fields"]) == ("info", "looking", {"n": 3})
    assert test_run["unused_mocks"] == ["datapool.query"]
    failed = data(acme.post(f"{address}/test", json={"input": {"n": 3}}))
    assert (failed["status"], failed["error"]["code"], failed["error"]["step"]) == ("failed", "not_found", "a")
    assert data(acme.get(f"{address}/executions")) == [], "a test is no execution"


def test_one_step_and_wrong_requests(acme: httpx.Client, globex: httpx.Client, address: str) -> None:
    test_run = data(acme.post(f"{address}/test", json={"step": "b", "context": {"steps": {"a": {"n": 1, "id": 2}}}}))
    assert (test_run["output"], [step["path"] for step in test_run["steps"]]) == ([1, 2, None], ["b"])
    assert error(acme.post(f"{address}/test", json={"step": "z"}), 422)["details"][0]["pointer"] == "/step"
    assert error(acme.post(f"{address}/test", json={"mocks": {"z": 1}}), 422)["details"][0]["pointer"] == "/mocks/z"
    assert error(acme.post(f"{address}/test", json={"version": 1}), 404)["code"] == "not_found"
    assert error(globex.post(f"{address}/test", json={}), 404)["code"] == "not_found"


def test_long_values_are_shown_truncated(acme: httpx.Client) -> None:
    address = f"{BASE}/much-is-shown"
    each = {"items": list(range(30)), "steps": [rule("long", "= 'x'.repeat(500000)")], "collect": "= 1"}
    assert acme.put(address, json={"steps": [{"id": "each", "for_each": each}]}).is_success
    test_run = data(acme.post(f"{address}/test", json={}))
    sizes = [len(step["output"]) for step in test_run["steps"] if step["step"] == "long"]
    assert sizes[0] == 500_000
    assert sizes[-1] == 1_001
    assert sum(sizes) < 5 << 20


def test_samples_are_pinned_from_executions(acme: httpx.Client, globex: httpx.Client) -> None:
    address = f"{BASE}/samples-are-pinned"
    each = {"items": [1, 2], "steps": [rule("inner", "= item")]}
    big = rule("big", "= 'x'.repeat(300000)")
    steps: list[Any] = [rule("a", "= input.n + 1"), {"id": "each", "for_each": each}, big, rule("b", "= steps.a")]
    assert acme.put(address, json={"steps": steps}).is_success
    data(acme.post(f"{address}/publish", json={}))
    run = data(acme.post(f"{address}/execute?wait=10", json={"n": 4}))
    pinned = data(acme.put(f"{address}/samples/four", json={"from_execution": run["execution_id"], "steps": {"b": None}}), 201)
    assert (pinned["input"], pinned["steps"]) == ({"n": 4}, {"a": 5, "each": [1, 2], "b": None})
    assert data(acme.get(f"{address}/samples/four")) == pinned
    assert [each["name"] for each in data(acme.get(f"{address}/samples"))] == ["four"]
    assert data(acme.post(f"{address}/test", json={"sample": "four"}))["output"] == 5
    assert data(acme.post(f"{address}/test", json={"sample": "four", "input": {"n": 9}}))["output"] == 10
    assert data(acme.post(f"{address}/test", json={"sample": "four", "step": "b"}))["output"] == 5
    assert data(acme.put(f"{address}/samples/four", json={"input": {"n": 1}}), 200)["steps"] == {}
    for client, path in ((globex, "samples/four"), (acme, "samples/five")):
        assert error(client.get(f"{address}/{path}"), 404)["code"] == "not_found"
    assert error(globex.put(f"{address}/samples/four", json={}), 404)["code"] == "not_found"
    assert error(acme.post(f"{address}/test", json={"sample": "five"}), 404)["code"] == "not_found"
    assert error(acme.put(f"{address}/samples/Five", json={}), 422)["details"][0]["pointer"] == "/name"
    assert error(acme.put(f"{address}/samples/five", json={"from_execution": "exe_none"}), 404)["code"] == "not_found"
    large = {"steps": dict.fromkeys("abc", "x" * 350_000)}
    assert error(acme.put(f"{address}/samples/five", json=large), 413)
    data(acme.delete(f"{address}/samples/four"))
    assert data(acme.get(f"{address}/samples")) == []
    assert error(acme.delete(f"{address}/samples/four"), 404)["code"] == "not_found"


def test_a_process_has_so_many_samples(acme: httpx.Client) -> None:
    address = f"{BASE}/so-many-samples"
    assert acme.put(address, json={"steps": [rule("a", "= 1")]}).is_success
    answers = [acme.put(f"{address}/samples/s{number}", json={}).status_code for number in range(51)]
    assert answers == [201] * 50 + [409]
