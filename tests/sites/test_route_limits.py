"""Rate limits of routes: per address or session, separately for each app and route."""

from dataclasses import replace

import httpx
import pytest

from appliance.sites.webapps.routes import Routes
from appliance.sites.webapps.sending import Sender
from appliance.testing.running import Running
from appliance.webapps.access import ANONYMOUS, Visitor
from appliance.webapps.routes import RouteTable, parse_routes
from tests.sites.test_entity_routes import ADA, BOB, Shop

ONCE = {"entities": "limit-notes", "operations": ["list"], "rate_limit": {"requests": 1, "window_s": 3600, "per": "session"}}
TABLE = RouteTable(
    parse_routes(
        [
            {"path": "/api/once", "access": "public", **ONCE},
            {"path": "/api/twice", "access": "public", **ONCE},
            {"path": "/api/free", "access": "public", "entities": "limit-notes", "operations": ["list"]},
        ]
    )
)
HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture(scope="module")
def notes(acme: httpx.Client, globex: httpx.Client) -> None:
    for api in (acme, globex):
        definition = {"name": "limit-notes", "fields": [{"name": "title", "type": "text"}], "access": {"list": "allow"}}
        api.post("/api/v1/datapool", json=definition).raise_for_status()


def shops(running: Running, calls: int, *places: tuple[str, str]) -> list[Shop]:
    """One appliance, where an address has so many calls a minute, as (tenant, address) sees it."""
    config = running.services.config
    services = replace(running.services, config=replace(config, limits=replace(config.limits, route_calls=calls)))
    result = [Shop(running, TABLE, tenant, address) for tenant, address in places]
    routes = Routes(services, Sender(services.blobs, services.threads))
    for shop in result:
        shop.routes = routes
    return result


def call(shop: Shop, path: str, visitor: Visitor = ANONYMOUS, cookie: str = "") -> int:
    return shop.ask(visitor, "GET", path, **({"cookie": cookie} if cookie else {})).status_code


def test_an_address_has_a_limit_for_all_routes_of_an_app(running: Running, notes: None) -> None:
    here, there, elsewhere = shops(running, 3, ("acme", HERE), ("acme", THERE), ("globex", HERE))
    statuses = [call(here, "/api/free", visitor) for visitor in (ANONYMOUS, ADA, BOB)]
    assert statuses == [200, 200, 200]
    late = here.ask(ADA, "GET", "/api/free")
    assert (late.status_code, late.json()["error"]["code"]) == (429, "rate_limited")
    assert 1 <= int(late.headers["retry-after"]) <= 60
    assert call(here, "/api/once", cookie=f"__Host-gos_browser={'a' * 32}") == 429
    assert (call(there, "/api/free"), call(elsewhere, "/api/free")) == (200, 200)


def test_a_visit_has_its_own_limit_from_any_address(running: Running, notes: None) -> None:
    here, there = shops(running, 100, ("acme", HERE), ("acme", THERE))
    assert (call(here, "/api/once", ADA), call(here, "/api/once", ADA), call(there, "/api/once", ADA)) == (200, 429, 429)
    assert call(here, "/api/once", BOB) == 200
    assert call(here, "/api/once", replace(ADA, session="s-ada-2")) == 200
    assert call(here, "/api/twice", ADA) == 200


def test_visitors_without_a_visit_are_counted_by_address(running: Running, notes: None) -> None:
    here, there = shops(running, 100, ("acme", HERE), ("acme", THERE))
    browsers = [f"__Host-gos_browser={letter * 32}" for letter in "abc"]
    assert [call(here, "/api/once", cookie=browser) for browser in browsers] == [200, 429, 429]
    assert call(here, "/api/once") == 429
    assert (call(there, "/api/once"), call(here, "/api/free")) == (200, 200)
