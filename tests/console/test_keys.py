"""API keys in the console: the rate limit in the form of a new one, and the page of a key."""

import json
from typing import Any

import httpx

from appliance.tenants.keys import key_addresses, keys
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser


def test_a_key_has_the_chosen_rate_limit(owner: Browser, acme: httpx.Client) -> None:
    form = {"name": fresh("slow"), "environment": "live", "days": "30", "addresses": "", "scopes": "logs.read"}
    at = owner.at("acme", "/console/keys/new")
    assert owner.post(at, {**form, "requests": "25"}).status_code == 201
    key = next(each for each in acme.get("/api/v1/keys?limit=500").json()["data"] if each["name"] == form["name"])
    assert key["rate_limit"]["requests"] == 25
    for wrong in ("0", "many", "10000000"):
        refused = owner.post(at, {**form, "requests": wrong})
        assert (refused.status_code, 'id="requests-error"' in refused.text) == (422, True)


def test_a_key_is_renamed_on_its_page(owner: Browser, acme: httpx.Client) -> None:
    key = acme.post("/api/v1/keys", json={"name": fresh("before"), "scopes": ["logs.read"]}).json()["data"]
    at, new = owner.at("acme", f"/console/keys/{key['id']}"), fresh("after")
    assert f'value="{key["name"]}"' in owner.get(at).text
    assert f'value="{new}"' in owner.post(at, {"name": new}).text
    refused = owner.post(at, {"name": " "})
    assert (refused.status_code, 'id="name-error"' in refused.text) == (422, True)
    (entry,) = acme.get(f"/api/v1/logs/audit?action=key.change&subject={key['id']}").json()["data"]
    assert json.loads(entry["fields"]) == {"name": [key["name"], new]}


def test_a_key_is_limited_in_its_form_and_on_its_page(owner: Browser, acme: httpx.Client) -> None:
    form = {"name": fresh("limited"), "environment": "live", "days": "30", "addresses": "", "scopes": "processflow.read"}
    fields = {"limited": "yes", "processes": "orders, returns", "collections": "", "integrations": ""}
    assert owner.post(owner.at("acme", "/console/keys/new"), {**form, **fields}).status_code == 201
    key = next(each for each in acme.get("/api/v1/keys?limit=500").json()["data"] if each["name"] == form["name"])
    assert key["limits"] == {"processes": ["orders", "returns"], "collections": [], "integrations": []}
    assert 'data-testid="limited-key"' in owner.get(owner.at("acme", "/console/keys")).text
    at = owner.at("acme", f"/console/keys/{key['id']}")
    assert 'value="orders, returns"' in owner.get(at).text
    refused = owner.post(at, {"name": key["name"], "limited": "yes", "collections": "x" * 64})
    assert (refused.status_code, "is not the name of a resource" in refused.text) == (422, True)
    assert "not limited" in owner.post(at, {"name": key["name"]}).text
    assert "limits" not in acme.get(f"/api/v1/keys/{key['id']}").json()["data"]


def test_a_daily_quota_is_set_on_the_page_and_its_use_is_shown(owner: Browser, acme: httpx.Client, running: Running) -> None:
    key = acme.post("/api/v1/keys", json={"name": fresh("daily"), "scopes": ["logs.read"], "daily_requests": 2}).json()["data"]
    with running.client("acme.localhost", {"X-API-Key": key["key"]}) as client:
        assert [client.get("/api/v1/tenant").status_code for _ in range(3)] == [200, 200, 429]
        refused = client.get("/api/v1/tenant")
    assert refused.json()["error"]["limit"] == "daily_requests"
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    running.services.limits.rates.quotas.flush()
    assert acme.get(f"/api/v1/keys/{key['id']}").json()["data"]["used_today"] == 2
    assert "2 of 2 requests today" in owner.get(owner.at("acme", "/console/keys?limit=500")).text
    at = owner.at("acme", f"/console/keys/{key['id']}")
    assert "2 of 2 requests" in owner.get(at).text
    wrong = owner.post(at, {"name": key["name"], "daily": "many"})
    assert (wrong.status_code, 'id="daily-error"' in wrong.text) == (422, True)
    assert "2 of 5 requests" in owner.post(at, {"name": key["name"], "daily": "5"}).text
    assert "no daily quota" in owner.post(at, {"name": key["name"], "daily": ""}).text


def test_recorded_requests_are_shown_and_filtered_on_the_page(owner: Browser, acme: httpx.Client, running: Running) -> None:
    key = acme.post("/api/v1/keys", json={"name": fresh("recorded"), "scopes": ["logs.read"]}).json()["data"]
    at = owner.at("acme", f"/console/keys/{key['id']}")
    assert "Requests of this key are not recorded." in owner.get(at).text
    assert "No requests recorded yet." in owner.post(at, {"name": key["name"], "records": "yes"}).text
    with running.client("acme.localhost", {"X-API-Key": key["key"]}) as client:
        assert [client.get(f"/api/v1/{path}").status_code for path in ("logs", "webapps")] == [200, 403]
    running.services.limits.key_requests.flush()
    assert owner.get(at).text.count('data-testid="row"') == 2
    failed = owner.get(f"{at}?show=failed&address=127.0.0.1").text
    assert ("GET /api/v1/webapps" in failed, "GET /api/v1/logs<" in failed) == (True, False)
    assert "No requests match." in owner.get(f"{at}?address=192.0.2.1").text


def test_the_use_from_a_new_address_is_announced_and_shown(owner: Browser, acme: httpx.Client, running: Running) -> None:
    def ask(path: str) -> list[dict[str, Any]]:
        return list(acme.get(f"/api/v1{path}").raise_for_status().json()["data"])

    key = acme.post("/api/v1/keys", json={"name": fresh("intake"), "scopes": ["keys.read"]}).json()["data"]
    webhook = acme.post("/api/v1/webhooks", json={"url": "https://hooks.test/in", "events": [key_addresses.EVENT]}).json()["data"]
    at, listed = owner.at("acme", f"/console/keys/{key['id']}"), owner.at("acme", "/console/keys?limit=500")
    assert "Not used yet." in owner.get(at).text
    with running.client("acme.localhost", {"X-API-Key": key["key"]}) as client:
        assert client.get("/api/v1/keys").status_code == 200
    key_addresses.store()
    (first,) = ask(f"/keys/{key['id']}/addresses")
    assert (first["address"], first["first_at"] <= first["last_at"]) == ("127.0.0.1", True)
    before = owner.get(listed).text.count("Used from a new address")
    keys.authenticate_key(running.services.sealer, key["key"], tenant_id="acme", address="198.51.100.7", request_id="req_1")
    key_addresses.store()
    assert [row["address"] for row in ask(f"/keys/{key['id']}/addresses")] == ["198.51.100.7", "127.0.0.1"]
    (entry,) = [row for row in ask(f"/logs/audit?action={key_addresses.EVENT}") if row["subject"] == key["id"]]
    assert (json.loads(entry["fields"])["address"], entry["actor"]) == ("198.51.100.7", f"key:{key['id']}")
    assert key_addresses.EVENT in {row["event"] for row in ask(f"/webhooks/{webhook['id']}/deliveries")}
    assert "198.51.100.7" in owner.get(at).text
    assert owner.get(listed).text.count("Used from a new address") == before + 1
    acme.delete(f"/api/v1/webhooks/{webhook['id']}").raise_for_status()
