"""Two tenants with resources for tests."""

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.declared_errors import check_error
from tests.api.resources import Resources


@pytest.fixture(scope="session")
def ours(running: Running, acme: httpx.Client) -> Resources:
    acme.event_hooks["response"].append(check_error)
    return Resources(running, "acme", acme)


@pytest.fixture(scope="session")
def theirs(running: Running, globex: httpx.Client) -> Resources:
    return Resources(running, "globex", globex)
