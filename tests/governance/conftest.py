"""One world per test."""

from collections.abc import Iterator

import pytest

from appliance.processes.executions import service as executions
from appliance.tenants import starters
from tests.integrations.world import World, open_world


@pytest.fixture(autouse=True)
def started_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions are known to have a starter, as in an appliance."""
    monkeypatch.setitem(starters.lookups, "execution", executions.find_starter)


@pytest.fixture
def world(store_url: str) -> Iterator[World]:
    with open_world(store_url) as world:
        yield world
