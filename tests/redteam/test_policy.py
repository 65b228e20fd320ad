"""The same policies apply to a key over MCP and over REST: what needs an approval over one needs it over the other."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.resources import PREFIX, Resources
from tests.mcp.client import call_tool
from tests.redteam.policies import DENIED, NEEDS, code_of


def test_a_write_that_needs_an_approval_over_mcp_needs_it_over_rest(
    running: Running, ours: Resources, agent: httpx.Client, agent_key: str
) -> None:
    collection = ours.collection()
    operations = [{"op": "create", "collection": collection, "values": {"number": "1"}}]
    by_mcp = call_tool(running, agent_key, "write_entities", operations=operations)
    by_rest = agent.post(f"{PREFIX}/datapool/batch", json={"operations": operations})
    assert by_mcp["error"]["code"] == by_rest.json()["error"]["code"] == "approval_required"
    assert by_mcp["error"]["action_digest"] == by_rest.json()["error"]["action_digest"]  # one action, one approval
    assert code_of(agent.post(f"{PREFIX}/datapool/{collection}/entities", json={"number": "2"})) == NEEDS
    assert ours.ask("POST", f"/datapool/{collection}/query", {}) == []


def test_mcp_refuses_a_service_key_and_says_who_can_change_it(running: Running) -> None:
    with running.client(f"acme.{running.config.domains.base}", {"X-API-Key": running.key("acme")}) as client:
        answer = client.post("/mcp", json={})
    assert (code_of(answer), answer.json()["error"]["reason"]) == (DENIED, "service_key")
    assert "administrator of API keys" in answer.json()["error"]["message"]


def test_an_agent_key_stays_one_and_its_children_are_agent_keys(running: Running, ours: Resources, agent: httpx.Client) -> None:
    key = ours.ask("POST", "/keys", {"name": "assistant", "scopes": ["entities.write", "keys.write", "keys.read"]})
    assert key["kind"] == "service"
    with running.client(f"acme.{running.config.domains.base}", {"X-API-Key": key["key"]}) as client:
        child = client.post(f"{PREFIX}/keys", json={"name": "child", "scopes": ["keys.read"]}).json()["data"]
        assert child["kind"] == "service"
        assert ours.ask("PATCH", f"/keys/{key['id']}", {"kind": "agent"})["kind"] == "agent"
        assert code_of(client.post(f"{PREFIX}/keys", json={"name": "child", "scopes": ["keys.read"]})) == NEEDS
    back = ours.client.patch(f"{PREFIX}/keys/{key['id']}", json={"kind": "service"})
    assert back.status_code == 422
    assert ours.ask("POST", f"/keys/{key['id']}/rotate", {})["kind"] == "agent"


def test_what_an_agent_key_issues_is_an_agent_key_and_it_takes_over_no_service_key(
    ours: Resources, agent: httpx.Client, policy: Callable[..., None]
) -> None:
    policy({"effect": "allow", "subject": {"credentials": ["agent"]}, "tools": ["api.*"]})
    child = agent.post(f"{PREFIX}/keys", json={"name": "child", "scopes": ["keys.read"], "kind": "service"})
    assert child.json()["data"]["kind"] == "agent"
    service = ours.ask("POST", "/keys", {"name": "ci", "scopes": ["keys.read"]})
    assert code_of(agent.post(f"{PREFIX}/keys/{service['id']}/rotate", json={})) == DENIED


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/processes", {"id": "p", "name": "P", "steps": []}),
        ("POST", "/processes/{process}/publish", {}),
        ("POST", "/processes/{process}/execute", {}),
        ("POST", "/processes/{process}/pause", None),
        ("POST", "/integrations", {"connector": "http", "name": "N", "slug": "n", "settings": {}}),
        ("PATCH", "/integrations/{integration}", {"name": "other"}),
        ("POST", "/integrations/{integration}/test", None),
        ("PUT", "/secrets/stolen", {"value": "s3cret"}),
        ("POST", "/keys", {"name": "more", "scopes": ["keys.read"]}),
        ("PUT", "/policies/own", {"mode": "enforce", "rules": [{"id": "a", "effect": "allow", "reason": "mine"}]}),
        ("POST", "/members", {"login": "x@y.test", "role": "owner"}),
        ("POST", "/documents/folders/move", {"from": "/a", "to": "/b"}),
        ("DELETE", "/datapool/{collection}", None),
        ("POST", "/webhooks", {"url": "https://example.com", "events": ["webapp.published"]}),
        ("POST", "/solutions/apply", None),
    ],
)
def test_every_other_way_to_change_something_needs_an_approval_too(
    ours: Resources, agent: httpx.Client, method: str, path: str, body: Any
) -> None:
    for name in ("process", "integration", "collection"):
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", getattr(ours, name)())
    more: dict[str, Any] = {"json": body} if body is not None else {}
    if path == "/solutions/apply":
        more = {"content": b"PK\x05\x06" + b"\0" * 18, "headers": {"Content-Type": "application/zip"}}
    answer = agent.request(method, PREFIX + path, **more)
    assert code_of(answer) == NEEDS, answer.text


def test_every_changing_route_is_governed_for_agents(running: Running) -> None:
    from appliance.api import load_routes

    self_governed = {route.name for route in load_routes() if route.acts.is_governed}
    assert self_governed == {"execute_action", "retry_call", "request_human_input", "cancel_request"}
    reading = {route.name for route in load_routes() if route.method != "GET" and route.acts.effect == "read"}
    assert reading == {"evaluate_policies", "replay_policy", "plan_solution", "query_entities"}


def test_an_approved_call_over_rest_runs_once_and_unchanged(
    ours: Resources, agent: httpx.Client, approve: Callable[[str], None]
) -> None:
    collection = ours.collection()
    path, body = f"{PREFIX}/datapool/{collection}/entities", {"number": "1"}
    approval_id = agent.post(path, json=body).json()["error"]["approval_id"]
    header = {"Approval-Id": approval_id}
    assert code_of(agent.post(path, json=body, headers=header)) == NEEDS
    approve(approval_id)
    assert code_of(agent.post(path, json={"number": "2"}, headers=header)) == DENIED
    assert agent.post(path, json=body, headers=header).status_code == 201
    assert code_of(agent.post(path, json=body, headers=header)) == DENIED
    assert [each["number"] for each in ours.ask("POST", f"/datapool/{collection}/query", {})] == ["1"]


def test_an_approved_execution_runs_the_version_that_was_approved(
    ours: Resources, agent: httpx.Client, approve: Callable[[str], None]
) -> None:
    process = ours.process()
    path = f"{PREFIX}/processes/{process}/execute"
    approval_id = agent.post(path, json={}, headers={"Idempotency-Key": "once"}).json()["error"]["approval_id"]
    approve(approval_id)
    header = {"Approval-Id": approval_id, "Idempotency-Key": "once"}
    approved_version = ours.ask("GET", f"/processes/{process}")["published_version"]
    assert ours.ask("POST", f"/processes/{process}/rollback", {"version": 1})["version"] != approved_version
    first = agent.post(path, json={}, headers=header)
    assert (first.status_code, first.json()["data"]["version"]) == (202, approved_version)
    again = agent.post(path, json={}, headers=header)
    assert again.json()["data"]["links"] == first.json()["data"]["links"]  # the repeated request, not another one


def test_rules_about_mcp_and_about_tools_hold_over_rest(
    ours: Resources, agent: httpx.Client, policy: Callable[..., None]
) -> None:
    collection, other = ours.collection(), ours.collection()
    policy(
        {"effect": "deny", "subject": {"via": ["mcp"]}, "tools": ["query_entities"],
         "when": {"input": {"collection": {"_eq": collection}}}},
        {"effect": "allow", "subject": {"credentials": ["agent"]}, "tools": ["write_entities"],
         "when": {"input": {"operations": {"collection": {"_eq": other}}}}},
        {"effect": "allow", "subject": {"via": ["rest"]}, "tools": ["*"]},
    )  # fmt: skip
    assert code_of(agent.post(f"{PREFIX}/datapool/{collection}/query", json={})) == DENIED
    assert code_of(agent.get(f"{PREFIX}/datapool/{collection}/entities")) == DENIED
    assert agent.get(f"{PREFIX}/datapool/{other}/entities").status_code == 200
    assert agent.post(f"{PREFIX}/datapool/{other}/entities", json={"number": "1"}).status_code == 201
    assert code_of(agent.post(f"{PREFIX}/datapool/{collection}/entities", json={"number": "1"})) == NEEDS
    assert ours.client.post(f"{PREFIX}/datapool/{collection}/query", json={}).status_code == 200  # a service key


def test_a_rule_that_hides_parts_from_agents_is_not_passed_over_rest(
    ours: Resources, agent: httpx.Client, policy: Callable[..., None]
) -> None:
    collection = ours.collection()
    owed = {"redact": ["/items/*/number"]}
    policy({"effect": "allow", "subject": {"credentials": ["agent"]}, "tools": ["query_entities"], "obligations": owed})
    answer = agent.post(f"{PREFIX}/datapool/{collection}/query", json={})
    assert (code_of(answer), answer.json()["error"]["reason"]) == (DENIED, "redacted")


def test_what_an_agent_key_did_over_rest_is_in_the_audit_trail(
    running: Running, ours: Resources, agent: httpx.Client, policy: Callable[..., None]
) -> None:
    collection = ours.collection()
    policy({"effect": "allow", "subject": {"credentials": ["agent"]}, "tools": ["write_entities"]})
    assert agent.post(f"{PREFIX}/datapool/{collection}/entities", json={"number": "1"}).status_code == 201
    fields = json.loads(ours.ask("GET", "/logs/audit?action=policy.allow&limit=1")[0]["fields"])
    assert (fields["credential"], fields["via"], fields["tool"]) == ("agent", "rest", "write_entities")
