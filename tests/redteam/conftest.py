"""Two tenants that create the resources of the attempts."""

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.resources import Resources
from tests.redteam.policies import agent, agent_key, approve, owner, policy

__all__ = ["agent", "agent_key", "approve", "owner", "policy"]


@pytest.fixture(scope="session")
def ours(running: Running, acme: httpx.Client) -> Resources:
    return Resources(running, "acme", acme)


@pytest.fixture(scope="session")
def theirs(running: Running, globex: httpx.Client) -> Resources:
    return Resources(running, "globex", globex)
