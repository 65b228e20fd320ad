"""Schemathesis against the routes of the appliance itself: every answer is as documented, and refused without key or scope."""

from collections.abc import Iterator

import httpx
import pytest
import requests

from appliance.api import Route, load_appliance_routes
from appliance.tenants import APPLIANCE_SCOPES
from appliance.testing.running import Running
from tests.api.openapi.fuzzing import Fuzz, load_operations
from tests.operations.conftest import issue
from tests.operations.examples import EXAMPLES

SAMPLE, MANY = 3, 60
SLOW = ("make_backup", "get_backup", "list_backups", "list_restore_rehearsals", "rehearse_restore")
"""Routes whose examples make a backup."""


@pytest.fixture
def fuzz(live: Running, operator: httpx.Client) -> Iterator[Fuzz]:
    operations = load_operations(operator.get("/api-docs/openapi.json").json())
    with requests.Session() as session:
        session.trust_env = False
        session.headers.update({"X-API-Key": operator.headers["x-api-key"], "Host": f"localhost:{live.config.server.port}"})
        yield Fuzz(live.config.server.port, lambda route: EXAMPLES[route.name](operator), operations, session)


def run_all(fuzz: Fuzz, count: int) -> None:
    for route in load_appliance_routes():
        fuzz.run(route, max(1, count // 20) if route.name in SLOW else count)
    succeeded = {name for name, answers in fuzz.by_route.items() if any(200 <= status < 300 for status in answers)}
    assert succeeded == {route.name for route in load_appliance_routes()}


def test_a_sample_of_requests_is_answered_as_documented(fuzz: Fuzz) -> None:
    run_all(fuzz, SAMPLE)


@pytest.mark.fuzz
def test_many_requests_are_answered_as_documented(fuzz: Fuzz) -> None:
    run_all(fuzz, MANY)
    print(dict(sorted(fuzz.answers.items())))


@pytest.mark.parametrize("route", load_appliance_routes(), ids=lambda route: str(route.name))
def test_without_the_scope_or_a_key_nothing_is_done(live: Running, fuzz: Fuzz, route: Route) -> None:
    narrow = issue(live, *(scope for scope in APPLIANCE_SCOPES if scope != route.scope))
    for key, status in ((narrow, 403), ("", 401), (live.key("acme"), 401)):
        fuzz.answers.clear()
        fuzz.session.headers["X-API-Key"] = key
        fuzz.examples = lambda _: EXAMPLES["create_tenant"](httpx.Client())
        fuzz.plans = ("nothing",)
        fuzz.run(route, 3)
        assert set(fuzz.answers) == {status}, (key[:8], dict(fuzz.answers))
