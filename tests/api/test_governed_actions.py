"""What a key is told when a rule stops an action, and how it stops things itself."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.resources import PREFIX, Resources, fresh


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
    given = {"action": "post", "input": {"url": "/orders"}, **more}
    return ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=given)


def test_what_needs_an_approval_says_what_to_ask_for(ours: Resources, slug: str) -> None:
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


def test_an_approval_that_is_none_is_refused(ours: Resources, slug: str) -> None:
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
