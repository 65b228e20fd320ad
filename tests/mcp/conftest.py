"""A tenant's resources, its key, and a user who decides approvals."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from appliance.connectors.testing import Answer, LoopbackServer
from appliance.governance.approvals import Approval, Decision, Verdict, approvals
from appliance.tenants import SignedIn
from appliance.testing.running import Running
from tests.api.resources import Resources
from tests.mcp.client import PASSWORD, call_tool

LOGIN = "mcp-approver"


@pytest.fixture(scope="session")
def key(running: Running) -> str:
    """An agent key of acme with every scope."""
    return running.key("acme", kind="agent")


@pytest.fixture
def ours(running: Running, acme: httpx.Client) -> Resources:
    return Resources(running, "acme", acme)


@pytest.fixture
def ask(running: Running, key: str) -> Callable[..., Any]:
    """Call one tool: the structured result, or the coded error of a refusal."""
    return partial(call_tool, running, key)


@pytest.fixture
def erp() -> Iterator[LoopbackServer]:
    """A foreign system that echoes orders."""
    server = LoopbackServer()
    server.answer("/", body=b"{}", Content_Type="application/json")
    server.answers["/orders"] = lambda received: Answer(201, {"Content-Type": "application/json"}, received.body or b"null")
    yield server
    server.close()


@pytest.fixture(scope="session")
def approver(running: Running) -> str:
    """The id of an owner of acme who created no key."""
    return running.user(LOGIN, PASSWORD, "acme")


@pytest.fixture
def decide(running: Running, approver: str) -> Callable[..., Approval]:
    """Decide a request as that user."""

    def decide_request(request_id: str, decision: Verdict = "approve", **more: Any) -> Approval:
        scope = running.tenant("acme").with_actor(f"user:{approver}")
        return approvals.decide_approval(scope, SignedIn(approver, LOGIN, "owner", scope), request_id, Decision(decision, **more))

    return decide_request
