"""Policies over REST: a draft in YAML, what it changes, its activation, and the decision explained."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

DRAFT = """
mode: enforce
rules:
  - id: large-orders
    effect: require_approval
    operations: [rest_test_*]
    when: {input: {total: {_gt: 1000}}}
    obligations: {approvers: [role:owner], redact: [/iban]}
    reason: A large order is looked at by an owner.
"""
YAML = {"Content-Type": "application/yaml"}
ACTION = {"effect": "write", "integration": "erp", "operation": "rest_test_post", "input": {"total": "1500.00"}}


@contextmanager
def draft_policy(client: httpx.Client, name: str) -> Iterator[httpx.Response]:
    """A policy of that name for a while."""
    answer = client.put(f"/api/v1/policies/{name}", content=DRAFT, headers=YAML)
    assert answer.status_code == 201, answer.text
    try:
        yield answer
    finally:
        client.post(f"/api/v1/policies/{name}/deactivate")
        client.delete(f"/api/v1/policies/{name}")


def test_a_policy_from_its_draft_to_its_deletion(acme: httpx.Client) -> None:
    at = "/api/v1/policies/rest-erp"
    with draft_policy(acme, "rest-erp") as answer:
        draft = answer.json()["data"]
        assert (draft["is_draft_active"], "active_version" in draft) == (False, False)
        assert answer.headers["etag"] == f'"{draft["draft_digest"]}"'
        [change] = [each for each in acme.get(f"{at}/diff").json()["data"]["changes"] if each.get("rule")]
        assert (change["happened"], change["rule"]) == ("added", "large-orders")
        stale = acme.post(f"{at}/activate", json={"digest": "sha256:other"})
        assert (stale.status_code, stale.json()["error"]["code"]) == (412, "version_conflict")
        active = acme.post(f"{at}/activate", json={"digest": draft["draft_digest"], "message": "first"}).json()["data"]
        assert (active["version"], active["state"], active["message"]) == (1, "active", "first")
        assert acme.get(f"{at}/diff").json()["data"] == {"from": 1, "to": "draft", "identical": True, "changes": []}
        assert acme.get(at).json()["data"]["is_draft_active"] is True
        assert acme.delete(at).json()["error"]["code"] == "conflict"
        changed = acme.put(at, content=DRAFT.replace("1000", "2000"), headers={**YAML, "If-Match": answer.headers["etag"]})
        assert (changed.status_code, changed.json()["data"]["is_draft_active"]) == (200, False)
        [change] = acme.get(f"{at}/diff").json()["data"]["changes"]
        assert (change["rule"], change["member"], change["after"]) == ("large-orders", "when", {"input": {"total": {"_gt": 2000}}})
        assert acme.put(at, content=DRAFT, headers={**YAML, "If-Match": answer.headers["etag"]}).status_code == 412
    assert acme.get(at).status_code == 404


def test_all_problems_of_a_draft_are_reported_together(acme: httpx.Client) -> None:
    wrong = DRAFT.replace("operations", "operation").replace("role:owner", "owner")
    answer = acme.put("/api/v1/policies/rest-wrong", content=wrong, headers=YAML)
    assert answer.status_code == 422
    problems = {each["pointer"]: each["message"] for each in answer.json()["error"]["details"]}
    assert problems.keys() == {"/rules/0/operation", "/rules/0/obligations/approvers/0"}
    assert "user:<login>" in problems["/rules/0/obligations/approvers/0"]
    assert acme.get("/api/v1/policies/rest-wrong").status_code == 404


def test_a_decision_is_explained_and_nothing_is_done(acme: httpx.Client) -> None:
    with draft_policy(acme, "rest-why") as draft:
        before = acme.post("/api/v1/policies/evaluate", json={"action": ACTION}).json()["data"]
        assert (before["verdict"], before["rules"]) == ("allow", [])
        document = draft.json()["data"]["draft"]
        after = acme.post("/api/v1/policies/evaluate", json={"action": ACTION, "policy": document}).json()["data"]
        assert (after["verdict"], after["rules"]) == ("require_approval", ["rest-why/large-orders"])
        assert after["reasons"] == ["rest-why/large-orders: A large order is looked at by an owner."]
        assert (after["obligations"]["approvers"], after["obligations"]["redact"]) == (["role:owner"], ["/iban"])
        assert after["policy_version"] != before["policy_version"]
        small = {**ACTION, "input": {"total": 5}}
        evaluation = acme.post("/api/v1/policies/evaluate", json={"action": small, "policy": document}).json()["data"]
        [finding] = [each for each in evaluation["findings"] if each["rule"] == "rest-why/large-orders"]
        assert (evaluation["verdict"], finding["holds"], finding["because"]) == ("allow", False, "when")
        odd = {**ACTION, "input": {"total": [5]}}
        evaluation = acme.post("/api/v1/policies/evaluate", json={"action": odd, "policy": document}).json()["data"]
        assert evaluation["verdict"] == "deny"
        assert "cannot order a list and a number" in evaluation["findings"][0]["fault"]
        agent = {"via": "agent", "agent": "clerk", "tainted_by": ["mail:inbox"]}
        evaluation = acme.post("/api/v1/policies/evaluate", json={"subject": agent, "action": small}).json()["data"]
        assert (evaluation["verdict"], "no rule allows an agent" in evaluation["reasons"][0]) == ("deny", True)
        assert acme.get("/api/v1/policies/rest-why/versions").json()["data"] == []


def test_a_draft_is_replayed_over_past_calls(acme: httpx.Client) -> None:
    slug = "replayed-system"
    acme.post("/api/v1/integrations", json={"slug": slug, "connector": "http", "settings": {"base_url": "http://127.0.0.1:9"}})
    acme.post(f"/api/v1/integrations/{slug}/execute", json={"action": "get", "input": {"url": "/"}})
    denying = {"id": "no", "effect": "deny", "integrations": [slug], "reason": "no"}
    body = {"policy": {"name": "rest-replay", "mode": "observe", "rules": [denying]}, "limit": 1}
    result = acme.post("/api/v1/policies/replay", json=body).json()["data"]
    [changed] = result["changed"]
    assert (changed["integration"], changed["before"], changed["after"]) == (slug, "allow", "deny")
    assert changed["rules"] == ["rest-replay/no"]
    assert result["scanned"] == sum(result["before"].values()) == sum(result["after"].values())
    further = acme.post("/api/v1/policies/replay", json={**body, "cursor": result["next_cursor"]}).json()["data"]
    assert further["changed"] == []
    for wrong in ({}, {**body, "name": "rest-replay"}, {"policy": body["policy"], "version": 1}, {**body, "since": "yesterday"}):
        assert acme.post("/api/v1/policies/replay", json=wrong).status_code == 422


def test_each_change_is_in_the_audit_trail(acme: httpx.Client) -> None:
    with draft_policy(acme, "rest-audit"):
        acme.post("/api/v1/policies/rest-audit/activate", json={})
    entries = acme.get("/api/v1/logs/audit", params={"subject": "rest-audit"}).json()["data"]
    assert [each["action"] for each in reversed(entries)] == [
        "policy.draft", "policy.activate", "policy.deactivate", "policy.delete",
    ]  # fmt: skip
