"""The app that the tests of routes use."""

from collections.abc import Iterator

import httpx
import pytest

from appliance.testing.running import Running
from tests.sites.route_shop import ROUTES, SAME, build, deploy


@pytest.fixture(scope="session")
def route_shop(running: Running, acme: httpx.Client, globex: httpx.Client) -> Iterator[httpx.Client]:
    """A browser on the app of acme; an app of the same name is globex's."""
    for api in (acme, globex):
        build(api)
        deploy(api, "route-shop", ROUTES).raise_for_status()
    with running.client("route-shop--acme.content.localhost", SAME) as client:
        yield client


@pytest.fixture
def stranger(running: Running, route_shop: httpx.Client) -> Iterator[httpx.Client]:
    """Somebody who is no browser."""
    with running.client("route-shop--acme.content.localhost") as client:
        yield client
