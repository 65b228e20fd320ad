"""What a key gets when a rule stops an action, and how it uses kill switches itself."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.governance.approvals import Decision
from tests.api.resources import PREFIX, Resources, fresh
from tests.api.test_approvals import decide


@pytest.fixture
def slug(ours: Resources) -> Iterator[str]:
    """An integration whose writes need an approval."""
    slug = ours.integration()
    rule = {"id": "ask", "effect": "require_approval", "effects": ["write"], "integrations": [slug], "reason": "somebody must look"}
    name = fresh("gate")
    ours.ask("PUT", f"/policies/{name}", {"mode": "enforce", "rules": [rule]})
    ours.ask("POST", f"/policies/{name}/activate", {})
    yield slug
    ours.ask("POST", f"/policies/{name}/deactivate", {})


def post(ours: Resources, slug: str, **more: Any) -> Any:
    """The answer to an action that writes."""
    body = {"action": "post", "input": {"url": "/orders"}, **more}
    return ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=body)


def test_a_refusal_names_the_approval_to_request(ours: Resources, slug: str) -> None:
    answer = post(ours, slug)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "approval_required")
    error = answer.json()["error"]
    assert (len(error["action_digest"]), error["verdict"], error["reason"]) == (64, "require_approval", "approval_required")
    assert "approval_id" in error["next"]
    assert "somebody must look" in error["reasons"][0]
    preview = post(ours, slug, mode="preview").json()["data"]
    assert (preview["status"], preview["policy"]["verdict"]) == ("previewed", "require_approval")
    assert preview["policy"]["action_digest"] == error["action_digest"]
    queued = ours.client.post(
        f"{PREFIX}/integrations/{slug}/execute?async=true", json={"action": "post", "input": {"url": "/orders"}}
    )
    assert queued.json()["error"]["code"] == "approval_required"


def test_a_call_requests_its_approval_once_and_runs_once_approved(ours: Resources, slug: str) -> None:
    """With one Idempotency-Key: nothing has run yet, so the same key accepts the body with the approval."""
    key = {"Idempotency-Key": fresh("order")}
    body = {"action": "request", "input": {"method": "DELETE", "url": "/orders/none"}}
    path = f"{PREFIX}/integrations/{slug}/execute"
    errors = [ours.client.post(path, json=body, headers=key).json()["error"] for _ in range(2)]
    assert [each["code"] for each in errors] == ["approval_required"] * 2
    assert (errors[0]["approval_id"], errors[0]["approval_status"]) == (errors[1]["approval_id"], "pending")
    approval = ours.ask("GET", f"/approvals/{errors[0]['approval_id']}")
    assert (approval["status"], approval["action_digest"]) == ("pending", errors[0]["action_digest"])
    assert errors[0]["review_url"] == approval["review_url"]
    decide(ours, approval["id"], Decision("approve"))
    approved = ours.client.post(path, json=body, headers=key).json()["error"]
    assert (approved["approval_id"], approved["approval_status"]) == (approval["id"], "approved")
    done = ours.client.post(path, json=body | {"approval_id": approval["id"]}, headers=key)
    assert done.json().get("error", {}).get("code") != "approval_required"
    assert ours.ask("GET", f"/approvals/{approval['id']}")["status"] == "used"
    again = ours.client.post(path, json=body).json()["error"]
    assert again["approval_id"] not in (approval["id"], None)
    decide(ours, again["approval_id"], Decision("reject"))
    rejected = ours.client.post(path, json=body).json()["error"]
    assert (rejected["approval_id"], rejected["approval_status"]) == (again["approval_id"], "rejected")


def test_a_key_that_cannot_request_approvals_gets_the_missing_scope(ours: Resources, slug: str) -> None:
    issued = ours.ask("POST", "/keys", {"name": fresh("narrow"), "scopes": ["integrations.execute"]})
    answer = ours.client.post(
        f"{PREFIX}/integrations/{slug}/execute", json={"action": "post", "input": {"url": "/orders"}},
        headers={"X-API-Key": issued["key"]},
    )  # fmt: skip
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["scope"]) == (403, "approval_required", "approvals.request")
    assert "approval_id" not in error
    assert "approvals.request" in error["message"]


def test_a_retry_needs_its_own_approval(ours: Resources, slug: str) -> None:
    body = {"action": "request", "input": {"method": "DELETE", "url": "/orders/none"}}
    path = f"{PREFIX}/integrations/{slug}"
    first = ours.client.post(f"{path}/execute", json=body).json()["error"]["approval_id"]
    decide(ours, first, Decision("approve"))
    failed = ours.client.post(f"{path}/execute", json=body | {"approval_id": first}).json()["error"]
    assert failed["code"] == "connector_failed"
    retry = f"{path}/executions/{failed['call_id']}/retry"
    refused = ours.client.post(retry).json()["error"]
    assert (refused["code"], refused["approval_status"]) == ("approval_required", "pending")
    assert refused["approval_id"] != first
    decide(ours, refused["approval_id"], Decision("approve"))
    answer = ours.client.post(retry, json={"approval_id": refused["approval_id"]})
    assert (answer.status_code, answer.json()["data"]["retry_of"]) == (202, failed["call_id"])


def test_an_unknown_approval_is_refused(ours: Resources, slug: str) -> None:
    unknown = post(ours, slug, approval_id="apr_nothing")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")


def test_an_agent_a_tool_and_the_tenant_are_switched_off_and_on(ours: Resources) -> None:
    agent = {"kind": "agent", "name": fresh("triage")}
    off = ours.ask("PUT", "/kill-switches", {**agent, "off": True, "reason": "it runs wild"})
    assert (off["kind"], off["name"], off["off"], off["reason"]) == ("agent", agent["name"], True, "it runs wild")
    assert agent["name"] in [each["name"] for each in ours.ask("GET", "/kill-switches")]
    assert ours.ask("PUT", "/kill-switches", {**agent, "off": False})["off"] is False
    assert agent["name"] not in [each["name"] for each in ours.ask("GET", "/kill-switches")]
    for wrong in ({"kind": "tenant", "name": "acme"}, {"kind": "agent"}, {"kind": "tool", "name": "x", "integration": "y"}, {}):
        answer = ours.client.put(f"{PREFIX}/kill-switches", json={**wrong, "off": True})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "validation_failed"), wrong
