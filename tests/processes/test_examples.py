"""The examples a process may begin with: each can be published as it is, and does what it says."""

from typing import Any

import httpx
import pytest

from appliance.processes import examples

EXPECTED: dict[str, tuple[dict[str, Any], Any]] = {
    "approval": ({"title": "Pens", "amount": 12}, {"title": "Pens", "approved": True}),
    "calculation": ({"items": [{"price": 4.5, "quantity": 2}]}, {"total": 9, "count": 1}),
    "decision": ({"country": "FR", "weight": 2}, {"carrier": "courier", "price": 24}),
}


def test_there_is_an_outcome_for_each() -> None:
    assert {each.name for each in examples.list_examples()} == {*EXPECTED, "schedule"}


@pytest.mark.parametrize("name", [each.name for each in examples.list_examples()])
def test_each_is_published_as_it_is(acme: httpx.Client, name: str) -> None:
    draft = examples.draft_of(name, f"begun-{name}", "")
    address = f"/api/v1/processes/begun-{name}"
    acme.put(address, json={"definition": draft.definition, "files": draft.files}).raise_for_status()
    told = acme.post(f"{address}/validate", json={}).json()["data"]
    assert told["problems"] == []
    acme.post(f"{address}/publish", json={}).raise_for_status()
    value, output = EXPECTED.get(name, ({}, None))
    ended = acme.post(f"{address}/execute", json=value, params={"wait": 30}).json()["data"]
    assert ended["status"] == "succeeded", ended
    if name in EXPECTED:
        assert ended["output"] == output
    acme.delete(address).raise_for_status()
