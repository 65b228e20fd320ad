"""Who may operate the appliance: its own keys alone, on its base host alone; and whoever is refused is in its trail."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.api import Route, load_appliance_routes, load_routes
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import APPLIANCE, tenant_ids
from appliance.monitor import AuditFilter, audit
from appliance.tenants import SCOPES, accounts, appliance_scope, people
from appliance.tenants.keys import KeySpec, issue_key, keys, make_key_text
from appliance.testing.running import Running
from tests.agents.world import wait_until
from tests.console.browser import Browser
from tests.operations.conftest import ADMINISTRATOR, issue

ROUTES = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_appliance_routes()]
SCOPED = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_appliance_routes() if route.scope]


@pytest.fixture(scope="module")
def base(live: Running) -> Iterator[httpx.Client]:
    with live.client(live.config.domains.base) as client:
        yield client


def call(client: httpx.Client, route: Route, key: str = "") -> tuple[int, str]:
    path = route.path.format(**dict.fromkeys(route.parameters, "x"))
    answer = client.request(route.method, f"/api/v1{path}", headers={"X-API-Key": key} if key else {})
    return answer.status_code, answer.json().get("error", {}).get("code", "")


def entries(action: str) -> list[tuple[str, dict[str, Any]]]:
    """Subjects and fields of the appliance's entries with this action, the oldest first."""
    page = audit.list_entries(appliance_scope(), AuditFilter(action=action), PageRequest(limit=500))
    return [(each.subject, json.loads(each.fields)) for each in reversed(page.items)]


def test_every_route_demands_a_scope_of_the_appliance() -> None:
    assert all((route.scope or "").startswith("appliance.") for route in load_appliance_routes())
    assert not any((route.scope or "").startswith("appliance.") for route in load_routes())


@pytest.mark.parametrize("route", ROUTES)
def test_keys_of_tenants_and_no_keys_are_refused(live: Running, base: httpx.Client, route: Route) -> None:
    assert call(base, route) == (401, "missing_api_key")
    assert call(base, route, live.key("acme", list(SCOPES))) == (401, "invalid_api_key")
    assert call(base, route, make_key_text("live")) == (401, "invalid_api_key")


@pytest.mark.parametrize("route", ROUTES)
def test_hosts_of_tenants_do_not_have_the_routes(live: Running, route: Route) -> None:
    key = issue(live)
    with live.client("acme.localhost") as client:
        assert call(client, route, key) == (404, "not_found")
        assert call(client, route, live.key("acme", list(SCOPES))) == (404, "not_found")


@pytest.mark.parametrize("route", SCOPED)
def test_a_missing_scope_is_named(live: Running, base: httpx.Client, route: Route) -> None:
    scopes = appliance_scope().scopes - {str(route.scope)}
    assert call(base, route, issue(live, *scopes)) == (403, "scope_missing")


def test_keys_of_the_appliance_reach_no_tenant(live: Running, base: httpx.Client) -> None:
    key = issue(live)
    routes = [route for route in load_routes() if route.method == "GET"]
    with live.client("acme.localhost") as tenant:
        for client in (base, tenant):
            assert {call(client, route, key) for route in routes} == {(401, "invalid_api_key")}
            refused = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers={"X-API-Key": key})
            assert refused.status_code == 401


def test_keys_end(live: Running, base: httpx.Client) -> None:
    (route,) = (each for each in load_appliance_routes() if each.name == "list_users")
    revoked, text = issue_key(appliance_scope(), live.services.sealer, KeySpec("short", ["appliance.read"]))
    assert call(base, route, text)[0] == 200
    keys.revoke_key(appliance_scope(), revoked.id)
    assert call(base, route, text) == (401, "revoked_api_key")
    _, text = issue_key(appliance_scope(), live.services.sealer, KeySpec("short", ["appliance.read"]), lifetime_ms=1)
    wait_until(lambda: call(base, route, text) == (401, "expired_api_key"))


def test_a_key_works_while_the_account_of_its_issuer_does(live: Running, base: httpx.Client) -> None:
    (route,) = (each for each in load_appliance_routes() if each.name == "list_users")
    person = people.create_user("second@acme.test", "correct horse battery")
    scope = appliance_scope(f"user:{person.id}")
    _, text = issue_key(scope, live.services.sealer, KeySpec("mine", ["appliance.read"]))
    assert call(base, route, text)[0] == 200
    accounts.disable_account("second@acme.test")
    assert call(base, route, text) == (401, "revoked_api_key")
    accounts.enable_account("second@acme.test")
    assert call(base, route, text)[0] == 200
    accounts.delete_account("second@acme.test")
    assert call(base, route, text) == (401, "revoked_api_key")


def test_the_rate_of_a_key_is_limited(live: Running, base: httpx.Client) -> None:
    (route,) = (each for each in load_appliance_routes() if each.name == "list_users")
    _, text = issue_key(appliance_scope(), live.services.sealer, KeySpec("slow", ["appliance.read"], rate_requests=2))
    assert [call(base, route, text)[0] for _ in range(4)] == [200, 200, 429, 429]


def test_the_owner_of_the_appliance_s_rows_is_no_tenant(live: Running, base: httpx.Client) -> None:
    assert APPLIANCE not in tenant_ids()
    key = issue(live)
    for path in (f"/tenants/{APPLIANCE}", f"/tenants/{APPLIANCE}/quotas"):
        assert base.get(f"/api/v1/appliance{path}", headers={"X-API-Key": key}).status_code == 404
    assert base.delete(f"/api/v1/appliance/tenants/{APPLIANCE}", headers={"X-API-Key": key}).status_code == 404
    refused = base.post("/api/v1/appliance/tenants", json={"id": APPLIANCE}, headers={"X-API-Key": key})
    assert refused.status_code == 422


@pytest.mark.writes_once(reason="counts entries")
def test_unknown_keys_and_logins_are_in_the_trail_of_the_appliance(live: Running) -> None:
    """ASVS 16.3.1."""
    tried, unknown = make_key_text("live"), "nobody-here@acme.test"
    with live.client("acme.localhost") as client:
        for _ in range(11):
            assert client.get("/api/v1/tenant", headers={"X-API-Key": tried}).status_code == 401
    wait_until(lambda: 10 in [fields["times_today"] for _, fields in entries("key.refuse")])
    browser = Browser(live)
    assert browser.sign_in(unknown, "a wrong password", "acme").status_code in (401, 422)
    wait_until(lambda: entries("sign_in.refuse"))
    assert entries("sign_in.refuse")[-1][0] == "unknown login"
    assert {"network", "times_today"} == set(entries("sign_in.refuse")[-1][1])
    trail = "".join(audit.iter_exported(appliance_scope()))
    assert tried[9:] not in trail
    assert unknown not in trail
    assert audit.verify(appliance_scope()).intact


@pytest.mark.writes_once(reason="counts entries")
def test_a_login_without_a_tenant_is_in_the_trail_of_the_appliance(live: Running) -> None:
    user_id = people.create_user("alone@acme.test", "correct horse battery").id
    Browser(live).sign_in("alone@acme.test", "a wrong password", "acme")
    wait_until(lambda: user_id in [subject for subject, _ in entries("sign_in.refuse")])
    Browser(live).sign_in(ADMINISTRATOR, "a wrong password", "acme")
    rows = "SELECT count(*) FROM audit_entry WHERE tenant_id = 'acme' AND action = 'sign_in.refuse'"
    wait_until(lambda: db.rows(rows) == [(1,)])
    assert ADMINISTRATOR not in [fields.get("login") for _, fields in entries("sign_in.refuse")]
