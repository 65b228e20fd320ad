"""What the routes of a WebApp reach is never more than whoever serves or previews it may."""

from typing import Any

import pytest

from appliance.core.scope import TenantScope
from appliance.tenants import confirmations
from appliance.tenants.scopes import ALL
from appliance.testing.running import Running
from tests.sites.route_shop import deploy

TENANT = "routing"
WEBAPPS = ("webapps.read", "webapps.write", "webapps.publish")
ROUTES: list[dict[str, Any]] = [
    {"path": "/api/customers", "entities": "customers", "operations": ["list", "create"], "access": "public"},
]


@pytest.fixture(scope="module")
def owner(running: Running) -> TenantScope:
    running.tenant(TENANT)
    with running.api(TENANT) as client:
        client.post("/api/v1/datapool", json={"name": "customers", "fields": [{"name": "name", "type": "text"}]}).raise_for_status()
    return TenantScope(TENANT, f"user:{running.user('owner@routing.test', 'correct horse battery', TENANT)}", ALL)


def test_a_key_of_webapps_alone_serves_and_previews_no_collection(running: Running, owner: TenantScope) -> None:
    with running.api(TENANT, WEBAPPS) as client:
        version = "/api/v1/webapps/leaky/versions/1"
        refused = deploy(client, "leaky", ROUTES)
        assert refused.json()["error"]["code"] == "grant_required", refused.text
        for verb in ("publish", "preview"):
            error = client.post(f"{version}/{verb}", json={}).json()["error"]
            assert (error["code"], error["scopes"]) == ("grant_required", ["entities.read", "entities.write"])
        (wanted,) = [each for each in confirmations.open_confirmations(owner) if each.subject == "webapp:leaky"]
        running.services.confirmations.decide(owner, wanted.id, True)
        assert client.post(f"{version}/publish", json={}).status_code == 200
    with running.api(TENANT, [*WEBAPPS, "entities.read", "entities.write"]) as client:
        assert deploy(client, "covered", ROUTES).status_code == 200
