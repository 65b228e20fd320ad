"""Fixtures for policies: an agent key, an owner who approves, and policies that end with their test."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.governance.approvals import Decision, approvals
from appliance.tenants import SignedIn
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.mcp.client import PASSWORD


@pytest.fixture
def agent_key(running: Running) -> str:
    return running.key("acme", kind="agent")


@pytest.fixture
def agent(running: Running, agent_key: str) -> Iterator[httpx.Client]:
    """The REST API with the key of an agent."""
    with running.client(f"acme.{running.config.domains.base}", {"X-API-Key": agent_key}) as client:
        yield client


@pytest.fixture(scope="session")
def owner(running: Running) -> str:
    return running.user("policy-owner", PASSWORD, "acme")


@pytest.fixture
def approve(running: Running, owner: str) -> Callable[[str], None]:
    """Approve a request in the name of an owner who made no key."""

    def approve_request(request_id: str) -> None:
        scope = running.tenant("acme").with_actor(f"user:{owner}")
        approvals.decide_approval(scope, SignedIn(owner, "policy-owner", "owner", scope), request_id, Decision("approve"))

    return approve_request


@pytest.fixture
def policy(ours: Resources) -> Iterator[Callable[..., None]]:
    """Activate a policy of these rules; it is deactivated after the test."""
    names: list[str] = []

    def activate(*rules: dict[str, Any]) -> None:
        name = fresh("redteam")
        listed = [{"id": f"r{number}", "reason": "the test says so", **rule} for number, rule in enumerate(rules)]
        ours.ask("PUT", f"/policies/{name}", {"mode": "enforce", "rules": listed})
        ours.ask("POST", f"/policies/{name}/activate", {})
        names.append(name)

    yield activate
    for name in names:
        ours.ask("POST", f"/policies/{name}/deactivate")


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", {}).get("code", "")


NEEDS, DENIED = (403, "approval_required"), (403, "policy_denied")
