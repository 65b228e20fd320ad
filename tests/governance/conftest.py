"""One world per test."""

from collections.abc import Iterator

import pytest

from appliance.processes.executions import service as executions
from appliance.tenants import starters
from tests.integrations.world import World, open_world


@pytest.fixture(autouse=True)
def started_executions() -> Iterator[None]:
    """Executions are known to have a starter, as in an appliance."""
    unregister = starters.register_starter("execution", executions.find_starter)
    yield
    unregister()


@pytest.fixture
def world(store_url: str) -> Iterator[World]:
    with open_world(store_url) as world:
        yield world
