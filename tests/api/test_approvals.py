"""Approvals that executions and keys request, over the API."""

import json
from pathlib import Path
from typing import Any

from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ApprovalFilter, Decision, approvals
from appliance.tenants import SignedIn, scopes_of_role
from tests.api.resources import PREFIX, Resources, fresh

SCHEMA = {"type": ["integer", "null"], "minimum": 1}


def answer(tenant: Resources, approval_id: str, value: Any) -> None:
    decide(tenant, approval_id, Decision("answer", value, "so be it"))


def decide(tenant: Resources, approval_id: str, decision: Decision) -> None:
    """As an owner who is signed in."""
    login = f"{fresh('decider')}@{tenant.tenant}.test"
    user_id = tenant.running.user(login, "a long enough password", tenant.tenant)
    scope = TenantScope(tenant.tenant, f"user:{user_id}", scopes_of_role("owner"))
    approvals.decide_approval(scope, SignedIn(user_id, login, "owner", scope), approval_id, decision)


def test_a_request_is_read_with_its_answer(ours: Resources) -> None:
    request = ours.approval("input", schema=SCHEMA, reason="why", approvers=["role:owner"])
    before = ours.ask("GET", f"/approvals/{request}")
    assert (before["kind"], before["status"], before["schema"], before["reason"]) == ("input", "pending", SCHEMA, "why")
    assert before["review_url"].endswith(f"//acme.localhost{ours.running.config.port_suffix}/console/approvals/{request}")
    assert not {"answer", "choices", "decided_by", "answer_schema"} & before.keys()
    answer(ours, request, None)
    after = ours.ask("GET", f"/approvals/{request}")
    assert (after["status"], after["answer"], after["comment"]) == ("answered", None, "so be it")
    assert after["decided_by"].startswith("decider-")


def test_the_list_is_narrowed_by_state_and_execution(ours: Resources) -> None:
    first, second = ours.approval(), ours.approval("choice", choices=["a", "b"])
    execution = ours.ask("GET", f"/approvals/{second}")["execution_id"]
    listed = ours.ask("GET", "/approvals?limit=2")
    assert [row["id"] for row in listed] == [second, first]
    assert [row["id"] for row in ours.ask("GET", f"/approvals?execution_id={execution}&status=pending")] == [second]
    assert ours.ask("GET", f"/approvals?execution_id={execution}&status=approved") == []
    assert ours.client.get(f"{PREFIX}/approvals?status=open").status_code == 400


def test_a_key_creates_and_withdraws_a_request(ours: Resources) -> None:
    body = {"kind": "input", "title": "How many?", "schema": SCHEMA, "ttl_seconds": 60, "idempotency_key": fresh("once")}
    request = ours.ask("POST", "/approvals", body)
    assert (request["status"], request["schema"], request["needed"]) == ("pending", SCHEMA, 1)
    assert request["asked_by"] == request["requested_by"]
    assert not {"execution_id", "process_id", "step", "action", "action_digest", "attempt"} & request.keys()
    assert ours.ask("POST", "/approvals", body)["id"] == request["id"]
    answer(ours, request["id"], 3)
    approval = ours.ask("GET", f"/approvals/{request['id']}")
    assert (approval["answer"], [each["verdict"] for each in approval["decisions"]]) == (3, ["answer"])
    withdrawn = ours.request()
    assert ours.ask("POST", f"/approvals/{withdrawn}/cancel")["status"] == "cancelled"
    assert ours.client.post(f"{PREFIX}/approvals/{withdrawn}/cancel").status_code == 409
    assert ours.client.post(f"{PREFIX}/approvals/{ours.approval()}/cancel").status_code == 409


def test_an_action_approved_for_a_key_runs_once_and_unchanged(ours: Resources) -> None:
    slug = ours.integration()
    arguments = {"integration": slug, "operation": "request", "params": {"method": "DELETE", "url": "/orders/none"}}
    action = {"tool": "execute_tenant_integration", "arguments": arguments}
    request = ours.ask("POST", "/approvals", {"kind": "approval", "reason": "stale", "action": action})
    assert (request["action"], len(request["action_digest"])) == (f"request of {slug}", 64)
    assert request["summary"].startswith(f"request of {slug} (http ")
    call = {"action": "request", "input": arguments["params"], "approval_id": request["id"]}
    refused = ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=call).json()["error"]
    assert (refused["code"], refused["reason"]) == ("approval_required", "pending")
    decide(ours, request["id"], Decision("approve"))
    changed = call | {"input": {"method": "PUT", "url": "/orders/1"}}
    other = ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=changed).json()["error"]
    assert (other["code"], other["reason"], other["changed"]) == ("policy_denied", "digest_differs", ["input"])
    ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=call)
    used = ours.ask("GET", f"/approvals/{request['id']}")
    assert (used["status"], used["used_by"].partition(":")[0]) == ("used", "call")
    again = ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=call).json()["error"]
    assert again["reason"] == "used"
    entries = ours.ask("GET", f"/logs/audit?subject={request['id']}&action=approval.refuse")
    assert [json.loads(each["fields"])["reason"] for each in entries] == ["used", "digest_differs", "pending"]


def test_the_example_of_the_manual_is_accepted(ours: Resources) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text()
    body = json.loads(manual.partition("```json")[2].partition("```")[0])
    body["action"]["arguments"] |= {"integration": ours.integration(), "operation": "get", "params": {"url": "/orders"}}
    request = ours.ask("POST", "/approvals", body | {"idempotency_key": fresh("order")})
    assert (request["reason"], request["status"]) == (body["reason"], "pending")


def test_an_invalid_request_is_refused(ours: Resources) -> None:
    for body, status in (({"kind": "wish", "title": "x"}, 422), ({"kind": "choice", "title": "x"}, 422), ({"title": "x"}, 422)):
        assert ours.client.post(f"{PREFIX}/approvals", json=body).status_code == status


def test_a_key_cannot_decide(ours: Resources) -> None:
    request = ours.approval()
    own = f"/approvals/{request}"
    for method, path in (("POST", f"{own}/decide"), ("POST", own), ("PATCH", own)):
        refused = ours.client.request(method, PREFIX + path, json={"verdict": "approve"})
        assert refused.status_code in (404, 405)
    scope = ours.scope.with_actor("key:any")
    pending = approvals.list_approvals(scope, ApprovalFilter("pending"), PageRequest())
    assert request in {row.id for row in pending.items}
