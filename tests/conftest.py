"""Fixtures of every test: one running appliance for the session, with two tenants that must never see each other."""

from collections.abc import Iterator

import httpx
import pytest

from appliance.testing.running import Running, make_config, start


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A live appliance; tests keep apart by using processes, collections and labels of their own."""
    live = start(make_config(tmp_path_factory.mktemp("data"), demo__order_system=True))
    live.tenant("acme")
    live.tenant("globex")
    yield live
    live.stop()


@pytest.fixture(scope="session")
def acme(running: Running) -> Iterator[httpx.Client]:
    """Tenant acme's API with every scope."""
    with running.api("acme") as client:
        yield client


@pytest.fixture(scope="session")
def globex(running: Running) -> Iterator[httpx.Client]:
    """Tenant globex's API with every scope."""
    with running.api("globex") as client:
        yield client
