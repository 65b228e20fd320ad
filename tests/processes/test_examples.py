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
    data = acme.post(f"{address}/validate", json={}).json()["data"]
    assert data["problems"] == []
    acme.post(f"{address}/publish", json={}).raise_for_status()
    value, output = EXPECTED.get(name, ({}, None))
    ended = acme.post(f"{address}/execute", json=value, params={"wait": 30}).json()["data"]
    assert ended["status"] == "succeeded", ended
    if name in EXPECTED:
        assert ended["output"] == output
    acme.delete(address).raise_for_status()


@pytest.mark.parametrize(("decision", "approved"), [("approved", True), ("rejected", False), ("expired", False)])
def test_above_the_limit_a_person_decides(acme: httpx.Client, decision: str, approved: bool) -> None:
    draft = examples.draft_of("approval", "begun-decided", "")
    acme.put("/api/v1/processes/begun-decided", json={"definition": draft.definition}).raise_for_status()
    mocks = {"decide": {"output": {"status": decision, "answer": None, "comment": "", "decided_by": "eve@acme.test"}}}
    request = {"input": {"title": "Chairs", "amount": 1200}, "mocks": mocks}
    data = acme.post("/api/v1/processes/begun-decided/test", json=request).json()["data"]
    assert (data["status"], data["output"]) == ("succeeded", {"title": "Chairs", "approved": approved}), data
    acme.delete("/api/v1/processes/begun-decided").raise_for_status()
