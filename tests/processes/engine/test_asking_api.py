"""A process that works side by side, waits without code and stops, from its YAML over HTTP to its result."""

from typing import Any

import httpx
import pytest

from tests.processes.test_api import BASE, data, error
from tests.processes.world import wait_until

INVOICE = """
id: flow-invoice
steps:
  - {id: total, rule: {expression: = input.amount * 2}}
"""
ORDER = """
id: flow-order
input: {type: object, required: [number, amount]}
output: {invoiced: = steps.both.invoice, paid: = steps.paid.sum}
steps:
  - id: both
    parallel:
      payment: [{id: paid, wait: {event: "paid-{{ input.number }}", timeout: 30d}}]
      invoice: [{id: invoice, process: {use: flow-invoice, input: {amount: = input.amount}}}]
  - id: small
    when: = steps.paid.sum < steps.both.invoice
    stop: {output: {short_of: = steps.both.invoice - steps.paid.sum}}
"""
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def order(acme: httpx.Client) -> str:
    """The address of the order process, published with the one it executes."""
    for name, text in (("flow-invoice", INVOICE), ("flow-order", ORDER)):
        assert acme.put(f"{BASE}/{name}", content=text, headers=YAML).status_code in (200, 201)
        data(acme.post(f"{BASE}/{name}/publish", json={}))
    return f"{BASE}/flow-order"


def one_that_waits(acme: httpx.Client, order: str) -> tuple[str, dict[str, Any]]:
    """The address of an execution, and the event it waits for when its child is done."""
    view = data(acme.post(f"{order}/execute", json={"number": "7", "amount": 10}), 202)

    def find_event() -> Any:
        current = data(acme.get(view["links"]["self"]))
        waits = (current.get("waiting_for") or {}).get("waits", [])
        return waits[0] if [wait["kind"] for wait in waits] == ["event"] else None

    return view["links"]["self"], wait_until(find_event)


@pytest.mark.parametrize(("sum_", "output"), [(20, {"invoiced": 20, "paid": 20}), (5, {"short_of": 15})])
def test_an_event_resumes_it_and_the_rest_follows(acme: httpx.Client, order: str, sum_: int, output: Any) -> None:
    address, wait = one_that_waits(acme, order)
    assert (wait["name"], wait["step"]) == ("paid-7", "paid")
    assert error(acme.post(f"{address}/resume", json={"token": "wai_none", "input": {}}), 404)["code"] == "not_found"
    data(acme.post(f"{address}/resume", json={"token": wait["token"], "input": {"sum": sum_}}), 202)
    wait_until(lambda: data(acme.get(address))["status"] == "succeeded")
    assert data(acme.get(address))["output"] == output
    steps = {step["step"]: step for step in data(acme.get(f"{address}/steps"))}
    assert (steps["both"]["kind"], steps["invoice"]["output"], steps["paid"]["input"]["event"]) == ("parallel", 20, "paid-7")


def test_another_tenant_sees_nothing_of_it(acme: httpx.Client, globex: httpx.Client, order: str) -> None:
    address, wait = one_that_waits(acme, order)
    assert error(globex.post(f"{address}/resume", json={"token": wait["token"], "input": {}}), 404)["code"] == "not_found"
    data(acme.post(f"{address}/cancel"))
    assert data(acme.get(address))["status"] == "cancelled"
    assert error(acme.post(f"{address}/resume", json={"token": wait["token"], "input": {}}), 409)["code"] == "execution_finished"
