"""One trace from a caller's request to the call that a step makes, and nothing in it of what was said."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running, make_config, start
from tests.console.browser import Browser
from tests.monitor.collector import Collector, to_dict
from tests.processes.world import code, rule

SECRET = "canary-in-the-input"
TOKEN = "canary-token"
TRACE, CALLER = "5" * 32, "6" * 16
CALL = f'return (await api.integrations.execute("erp", "get", {{url: "/orders?q={SECRET}"}})).status'


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    collector.answer("/orders", body=b"{}", Content_Type="application/json")
    yield collector
    collector.close()


@pytest.fixture(scope="module")
def spans(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Every span of an appliance that has worked and stopped."""
    folder = tmp_path_factory.mktemp("traced")
    settings = {"otlp__endpoint": collector.url, "otlp__metrics_seconds": 60, "egress__allow": ["127.0.0.0/8"]}
    live = start(make_config(folder, **settings))
    try:
        with live.api("acme") as client:
            work(client, collector)
        visit(live)
    finally:
        live.stop()
    return [(span, to_dict(span.attributes)) for span in collector.spans()]


def work(client: httpx.Client, collector: Collector) -> None:
    settings = {"base_url": collector.url, "auth": {"kind": "bearer", "token": TOKEN}}
    input_data = {"slug": "erp", "connector": "http", "settings": settings}
    client.post("/api/v1/integrations", json=input_data).raise_for_status()
    publish(client, "order", [code("fetch", CALL), rule("double", "= 2 * 2")], {"integrations": {"erp": ["get"]}})
    fault = code("boom", f'throw new Error("{SECRET}")')
    publish(client, "broken", [fault])
    publish(client, "inner", [rule("one", "= 1")])
    publish(client, "outer", [{"id": "sub", "process": {"use": "inner", "input": {}}}])
    outer = client.post("/api/v1/processes/outer/execute?wait=30", json={})
    assert outer.json()["data"]["status"] == "succeeded", outer.text
    header = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    done = client.post(f"/api/v1/processes/order/execute?wait=30&label={SECRET}", json={"card": SECRET}, headers=header)
    assert done.json()["data"]["status"] == "succeeded", done.text
    failed = client.post("/api/v1/processes/broken/execute?wait=30", json={"card": SECRET})
    assert failed.json()["data"]["status"] == "failed", failed.text
    unwanted = {"traceparent": f"00-{'7' * 32}-{CALLER}-00"}
    client.post("/api/v1/processes/broken/execute?wait=30", json={}, headers=unwanted).raise_for_status()
    assert client.get(f"/api/v1/{SECRET}?{SECRET}").status_code == 404


def publish(client: httpx.Client, name: str, steps: list[dict[str, Any]], grants: dict[str, Any] | None = None) -> None:
    client.put(f"/api/v1/processes/{name}", json={"steps": steps, "grants": grants or {}}).raise_for_status()
    client.post(f"/api/v1/processes/{name}/publish", json={}).raise_for_status()


def visit(live: Running) -> None:
    browser = Browser(live)
    browser.send("GET", browser.at("acme", "/console/processes/order"), None, {})


def only(spans: list[Any], name: str) -> Any:
    (results,) = [each for each in spans if each[0].name == name]
    return results


def test_the_trace_of_a_caller_continues_into_the_call_of_a_step(spans: list[Any]) -> None:
    trace = [each for each in spans if each[0].trace_id.hex() == TRACE]
    request, attributes = only(trace, "POST /api/v1/processes/<process_id>/execute")
    execution, execution_attributes = only(trace, "execute order")
    step, step_attributes = only(trace, "step fetch")
    call, call_attributes = only(trace, "call erp.get")
    other, _ = only(trace, "step double")
    assert len(trace) == 5
    assert request.parent_span_id.hex() == CALLER
    assert [each.parent_span_id for each in (execution, step, other, call)] == [
        request.span_id, execution.span_id, execution.span_id, step.span_id,
    ]  # fmt: skip
    assert [each.kind for each in (request, execution, step, call)] == [2, 1, 1, 3]
    ids = {"gos.tenant": "acme", "gos.process": "order", "gos.execution": execution_attributes["gos.execution"]}
    assert ids["gos.execution"].startswith("exe_")
    assert {**execution_attributes, **ids} == execution_attributes
    assert {**step_attributes, **ids} == step_attributes
    assert (
        execution_attributes["gos.status"], step_attributes["gos.step"], step_attributes["gos.step.kind"]
    ) == ("succeeded", "fetch", "code")
    assert (
        call_attributes["gos.integration"], call_attributes["gos.action"], call_attributes["gos.tenant"]
    ) == ("erp", "get", "acme")
    assert (
        attributes["http.response.status_code"], attributes["gos.tenant"], attributes["http.request.method"]
    ) == (200, "acme", "POST")
    assert execution.start_time_unix_nano <= step.start_time_unix_nano <= step.end_time_unix_nano


def test_a_process_within_a_process_is_in_the_same_trace(spans: list[Any]) -> None:
    outer, inner = only(spans, "execute outer")[0], only(spans, "execute inner")[0]
    assert (inner.trace_id, inner.parent_span_id) == (outer.trace_id, outer.span_id)


def test_a_failed_span_has_its_failure_class(spans: list[Any]) -> None:
    execution, attributes = only(spans, "execute broken")
    step, step_attributes = only(spans, "step boom")
    assert (execution.status.code, attributes["error.type"], attributes["gos.status"]) == (2, "user_code", "failed")
    assert (step.status.code, step.status.message, step_attributes["error.type"]) == (2, "", "user_code")
    assert execution.trace_id != bytes.fromhex(TRACE)


def test_an_unsampled_caller_is_not_traced(spans: list[Any]) -> None:
    assert [each[0].name for each in spans if each[0].trace_id.hex() == "7" * 32] == []


def test_pages_of_the_console_have_spans_too(spans: list[Any]) -> None:
    page, attributes = only(spans, "GET /console/processes/<process_id>")
    assert (attributes["gos.area"], attributes["gos.tenant"], page.kind) == ("console", "acme", 2)


def test_spans_contain_no_values(spans: list[Any], collector: Collector) -> None:
    """Paths and queries are values too: the route's template stands for them."""
    assert spans
    pushed = b"".join(each.body for each in collector.received if each.path.startswith("/v1/"))
    assert SECRET.encode() not in pushed
    assert TOKEN.encode() not in pushed
    assert any(attributes.get("http.response.status_code") == 404 for _, attributes in spans)


def test_metrics_are_exported_too(spans: list[Any], collector: Collector) -> None:
    assert spans
    ended = collector.metrics()["gos_executions_total"].sum.data_points
    assert sum(point.as_double for point in ended) >= 3
