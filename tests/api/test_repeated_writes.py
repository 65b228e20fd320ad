"""Every changing route does the same when each of its writes is run twice, the first time in vain."""

import threading
from typing import Any

import httpx
import pytest

from appliance.api import load_routes
from appliance.api.frame.routing import Route
from tests.api.examples import EXAMPLES
from tests.api.resources import Resources, fresh
from tests.api.sending import send
from tests.repeated_writes import repeated, unrepeated

CHANGING = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_routes() if route.method != "GET"]


_PROGRESS = {
    "started_at", "finished_at", "duration_ms", "output", "outcome", "error", "queue", "traffic", "wait_reason", "waiting_for",
}  # fmt: skip


def outcome(answer: httpx.Response) -> tuple[int, str, Any]:
    """The status, the media type and the names of the members of the answer, but of those that tell whether a worker has begun."""
    media = answer.headers.get("content-type", "").partition(";")[0]
    data = answer.json()["data"] if media == "application/json" else None
    return answer.status_code, media, sorted(data.keys() - _PROGRESS) if isinstance(data, dict) else type(data)


@pytest.mark.writes_once(reason="repeats by itself, and compares")
@pytest.mark.parametrize("route", CHANGING)
def test_a_route_does_the_same_when_its_writes_are_repeated(ours: Resources, route: Route) -> None:
    with unrepeated():
        once = send(ours.client, route, EXAMPLES[route.name](ours))
    example = EXAMPLES[route.name](ours)
    with repeated():
        twice = send(ours.client, route, example)
    assert once.is_success, once.text
    assert outcome(twice) == outcome(once), twice.text


@pytest.mark.writes_once(reason="repeats by itself")
@pytest.mark.parametrize("route", [each for each in CHANGING if each.values[0].method == "POST"])  # type: ignore[union-attr]
def test_a_route_with_an_idempotency_key_is_one_repeatable_write(ours: Resources, route: Route) -> None:
    """Here the function of the write is the whole handler."""
    example, key = EXAMPLES[route.name](ours), {"Idempotency-Key": fresh("key")}
    with repeated():
        answer = send(ours.client, route, example, **key)
    assert answer.is_success, answer.text


def _wait_for_end(ours: Resources, address: str) -> Any:
    pause = threading.Event()
    while (execution := ours.ask("GET", address))["status"] in ("queued", "running"):
        pause.wait(0.02)
    return execution


@pytest.mark.writes_once(reason="repeats by itself")
@pytest.mark.parametrize("wait", [{}, {"wait": 20}], ids=["queued", "awaited"])
def test_an_execution_with_code_entities_and_a_loop_is_repeatable(ours: Resources, wait: dict[str, int]) -> None:
    collection = ours.collection()
    create = f"api.datapool.create('{collection}', {{number: 'c'}})"
    source = f"export default async (input: any, api: any) => (await {create}).number"
    steps: list[dict[str, Any]] = [
        {"id": "code", "code": {"language": "typescript", "source": source}},
        {"id": "add", "datapool": {"collection": collection, "create": {"values": {"number": "= steps.code + 'd'"}}}},
        {"id": "each", "for_each": {"items": "= [1, 2]", "as": "item", "steps": [{"id": "one", "rule": {"expression": "= item"}}]}},
    ]
    with repeated():
        process = ours.process(steps=steps, grants={"datapool": {collection: ["read", "write"]}})
        started = ours.ask("POST", f"/processes/{process}/execute", {}, params=wait)
        ended = _wait_for_end(ours, f"/processes/{process}/executions/{started['execution_id']}")
    assert ended["status"] == "succeeded", ended
    stored = ours.ask("GET", f"/datapool/{collection}/entities")
    assert sorted(each["number"] for each in stored) == ["c", "cd"]
