"""Keys over HTTP: issue, rotate, revoke, expire, addresses and rate limits."""

import json
import statistics
import threading
import time
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.tenants import SCOPES, scopes_of_role
from appliance.tenants.keys import is_key_text, lineage, make_key_text
from appliance.testing.running import Running
from tests.api.test_bodies import error

KEYS, HERE = "/api/v1/keys", "/api/v1/tenant"


def issue(client: httpx.Client, **more: Any) -> dict[str, Any]:
    body = {"name": "issued", "scopes": ["logs.read", "keys.read"], "environment": "test", **more}
    answer = client.post(KEYS, json=body)
    assert answer.status_code == 201, answer.text
    key: dict[str, Any] = answer.json()["data"]
    return key


def use(running: Running, key: str, path: str = HERE, **headers: str) -> httpx.Response:
    with running.client("acme.localhost", {"X-API-Key": key, **headers}) as client:
        return client.get(path)


def test_a_key_has_the_form_of_the_contract_and_is_shown_once(running: Running, acme: httpx.Client) -> None:
    key = issue(acme)
    assert is_key_text(key["key"])
    assert key["key"].startswith("gos_test_")
    assert len(key["key"]) == len("gos_test_") + 36
    assert key["key"].endswith(key["last4"])
    assert key["key"].startswith(key["prefix"])
    answer = acme.get(f"{KEYS}/{key['id']}")
    assert "key" not in answer.json()["data"]
    assert key["key"][10:-4] not in answer.text + acme.get(KEYS).text
    assert use(running, key["key"]).is_success


def test_a_key_is_renamed_and_keeps_its_text(running: Running, acme: httpx.Client) -> None:
    key = issue(acme)
    changed = acme.patch(f"{KEYS}/{key['id']}", json={"name": " nightly import "})
    assert changed.status_code == 200
    assert (changed.json()["data"]["name"], changed.json()["data"]["kind"]) == ("nightly import", "service")
    assert use(running, key["key"]).is_success
    both = acme.patch(f"{KEYS}/{key['id']}", json={"name": "assistant", "kind": "agent"}).json()["data"]
    assert (both["name"], both["kind"]) == ("assistant", "agent")
    entries = acme.get(f"/api/v1/logs/audit?action=key.change&subject={key['id']}").json()["data"]
    read = [json.loads(each["fields"]) for each in entries]
    assert read == [{"name": ["nightly import", "assistant"]}, {"name": ["issued", "nightly import"]}]
    for wrong in ({}, {"name": ""}, {"name": "two\nlines"}, {"name": None}):
        error(acme.patch(f"{KEYS}/{key['id']}", json=wrong), 422, "validation_failed")
    error(acme.patch(f"{KEYS}/key_none", json={"name": "new"}), 404, "not_found")


def test_a_key_is_never_stored(running: Running, acme: httpx.Client) -> None:
    key = issue(acme)["key"]
    path = running.config.data / "gos.db"
    secret = key.removeprefix("gos_test_").encode()
    for file in (path, path.with_name("gos.db-wal")):
        assert secret not in file.read_bytes()


def test_the_checksum_of_a_key_detects_a_wrong_character() -> None:
    text = make_key_text("live")
    assert is_key_text(text)
    for index in range(4, len(text)):
        if text[index] != "_":
            assert not is_key_text(text[:index] + ("a" if text[index] != "a" else "b") + text[index + 1 :])
    assert not is_key_text("")
    assert not is_key_text("gos_" + "a" * 60)


def test_a_key_is_valid_for_a_year_by_default(acme: httpx.Client) -> None:
    key = issue(acme)
    assert key["expires_at"][:4] == str(int(key["created_at"][:4]) + 1)
    assert key["rate_limit"] == {"requests": 600, "window_s": 60}


def test_a_key_is_never_wider_than_its_issuer(running: Running) -> None:
    with running.api("acme", ["keys.write", "logs.read"]) as narrow:
        refused = narrow.post(KEYS, json={"name": "wide", "scopes": ["logs.read", "secrets.write"]})
        assert "secrets.write" in error(refused, 403, "scope_missing")["message"]
        assert issue(narrow, scopes=["logs.read"])["scopes"] == ["logs.read"]


def test_rotating_a_wider_key_needs_its_scopes(running: Running, acme: httpx.Client) -> None:
    wide = issue(acme, scopes=sorted(SCOPES))
    with running.api("acme", ["keys.write", "logs.read"]) as narrow:
        error(narrow.post(f"{KEYS}/{wide['id']}/rotate", json={}), 403, "scope_missing")
    assert use(running, wide["key"]).is_success


def test_rotation_overlaps_and_touches_no_other_key(running: Running, acme: httpx.Client) -> None:
    old, other = issue(acme, allowed_ips=["127.0.0.0/8"], rate_limit={"requests": 77, "window_s": 9}), issue(acme)
    new = acme.post(f"{KEYS}/{old['id']}/rotate", json={"overlap_seconds": 60}).json()["data"]
    assert new["rotated_from"] == old["id"]
    for name in ("scopes", "allowed_ips", "rate_limit", "environment", "name"):
        assert new[name] == old[name]
    assert all(use(running, key["key"]).is_success for key in (old, new, other))
    assert "grace_until" in acme.get(f"{KEYS}/{old['id']}").json()["data"]
    newer = acme.post(f"{KEYS}/{new['id']}/rotate", json={}).json()["data"]
    error(use(running, new["key"]), 401, "expired_api_key")
    assert all(use(running, key["key"]).is_success for key in (old, newer, other))


def test_rotating_again_does_not_prolong_an_old_key(running: Running, acme: httpx.Client) -> None:
    old = issue(acme)
    acme.post(f"{KEYS}/{old['id']}/rotate", json={"overlap_seconds": 0})
    answer = acme.post(f"{KEYS}/{old['id']}/rotate", json={"overlap_seconds": 3600})
    assert answer.status_code == 201
    error(use(running, old["key"]), 401, "expired_api_key")


def test_a_revoked_key_is_refused_at_once(running: Running, acme: httpx.Client) -> None:
    key = issue(acme)
    assert use(running, key["key"]).is_success
    revoked = acme.delete(f"{KEYS}/{key['id']}").json()["data"]["revoked_at"]
    error(use(running, key["key"]), 401, "revoked_api_key")
    assert acme.delete(f"{KEYS}/{key['id']}").json()["data"]["revoked_at"] == revoked
    error(acme.post(f"{KEYS}/{key['id']}/rotate", json={}), 409, "conflict")


def test_an_expired_key_is_refused(running: Running, acme: httpx.Client) -> None:
    key = issue(acme)
    db.write(lambda: db.execute("UPDATE api_key SET expires_at = 1 WHERE id = ?", (key["id"],)))
    lineage.clear_cache()
    error(use(running, key["key"]), 401, "expired_api_key")


def test_addresses_are_checked(running: Running, acme: httpx.Client) -> None:
    near, far = issue(acme, allowed_ips=["192.0.2.1", "127.0.0.0/24"]), issue(acme, allowed_ips=["192.0.2.0/24", "2001:db8::/32"])
    assert use(running, near["key"]).is_success
    error(use(running, far["key"]), 403, "address_not_allowed")


def test_the_last_use_is_recorded(acme: httpx.Client, running: Running) -> None:
    key = issue(acme)
    assert "last_used_at" not in key
    use(running, key["key"])
    db.write(lambda: None)  # whatever was submitted before is committed
    assert acme.get(f"{KEYS}/{key['id']}").json()["data"]["last_used_at"] >= key["created_at"]


def test_a_rate_limit_is_announced_and_enforced(running: Running, acme: httpx.Client) -> None:
    limited, other = issue(acme, rate_limit={"requests": 3, "window_s": 600}), issue(acme)
    remaining = []
    for path in (HERE, "/api/v1/none-such/x", f"{KEYS}/key_none", HERE):
        answer = use(running, limited["key"], path)
        remaining.append(answer.headers.get("ratelimit", "").split(";")[:2])
    assert remaining[0] == ['"default"', "r=2"]
    refused = use(running, limited["key"])
    assert error(refused, 429, "rate_limited")["message"]
    assert refused.headers["ratelimit-policy"] == '"default";q=3;w=600'
    assert 1 <= int(refused.headers["retry-after"]) <= 600
    assert refused.headers["ratelimit"] == f'"default";r=0;t={refused.headers["retry-after"]}'
    assert use(running, other["key"]).is_success


def test_a_refusal_announces_the_rate_limit_too(acme: httpx.Client) -> None:
    for answer in (
        acme.get(f"{KEYS}/key_none"),
        acme.post(KEYS, json={}),
        acme.get(f"{KEYS}?x=1"),
        acme.post("/api/v1/processes/none/execute", json={}),
    ):
        assert answer.status_code >= 400
        assert answer.headers["ratelimit-policy"].startswith('"default";q=')


def test_a_limit_holds_against_many_threads(running: Running, acme: httpx.Client) -> None:
    key = issue(acme, rate_limit={"requests": 20, "window_s": 600})["key"]
    seen: list[int] = []

    def ask() -> None:
        with running.client("acme.localhost", {"X-API-Key": key}) as client:
            for _ in range(10):
                seen.append(client.get(HERE).status_code)  # noqa: PERF401

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen.count(200), seen.count(429)) == (20, 40)


def test_unknown_and_foreign_keys_take_the_same_time(running: Running, acme: httpx.Client, globex: httpx.Client) -> None:
    foreign, unknown, form = globex.headers["x-api-key"], make_key_text("test"), "gos_test_" + "a" * 36
    times: dict[str, list[float]] = {foreign: [], unknown: [], form: []}
    with running.client("acme.localhost") as client:
        for _ in range(60):
            for key, durations in times.items():
                began = time.perf_counter()
                client.get(HERE, headers={"X-API-Key": key})
                durations.append(time.perf_counter() - began)
    medians = [statistics.median(values) for values in times.values()]
    assert max(medians) - min(medians) < 0.01


@pytest.mark.parametrize("key", [b"\xff\xfe", "schlüssel".encode(), b"a" * 4000, b"gos_live_ x", b"'; DROP TABLE api_key; --"])
def test_an_arbitrary_text_as_key_is_refused(running: Running, key: bytes) -> None:
    with running.client("acme.localhost") as client:
        error(client.get(HERE, headers=[(b"X-API-Key", key)]), 401, "invalid_api_key")


def test_a_key_is_read_from_its_header_only(running: Running) -> None:
    key = running.key("acme")
    with running.client("acme.localhost") as client:
        error(client.get(HERE, headers={"Authorization": f"Bearer {key}"}), 401, "missing_api_key")
        error(client.get(f"{HERE}?api_key={key}"), 401, "missing_api_key")
        error(client.get(HERE, headers={"Cookie": f"X-API-Key={key}"}), 401, "missing_api_key")
        error(client.get(HERE, headers={"X-API-Key": ""}), 401, "missing_api_key")


def test_the_last_owner_stays_and_no_member_gets_more_rights_than_the_caller(running: Running) -> None:
    members = "/api/v1/members"
    for login in ("first@owned.test", "second@owned.test"):
        running.user(login, "a long enough password")
    with running.api("owned", ["keys.write"]) as narrow:
        error(narrow.post(members, json={"login": "first@owned.test", "role": "owner"}), 403, "scope_missing")
    with running.api("owned") as client:
        error(client.post(members, json={"login": "nobody@owned.test", "role": "viewer"}), 404, "not_found")
        first = client.post(members, json={"login": "FIRST@owned.test", "role": "owner"}).json()["data"]["user_id"]
        error(client.delete(f"{members}/{first}"), 409, "conflict")
        error(client.post(members, json={"login": "first@owned.test", "role": "viewer"}), 409, "conflict")
        assert client.post(members, json={"login": "second@owned.test", "role": "owner"}).status_code == 201
        with running.api("owned", ["keys.write", *sorted(scopes_of_role("viewer"))]) as narrow:
            error(narrow.post(members, json={"login": "first@owned.test", "role": "viewer"}), 403, "scope_missing")
            error(narrow.delete(f"{members}/{first}"), 403, "scope_missing")
        assert client.post(members, json={"login": "first@owned.test", "role": "viewer"}).status_code == 201
        assert [row["role"] for row in client.get(members).json()["data"]] == ["viewer", "owner"]
        assert client.delete(f"{members}/{first}").is_success
        error(client.delete(f"{members}/{first}"), 404, "not_found")


def test_secrets_are_write_only(acme: httpx.Client) -> None:
    value = "a-value-that-never-returns"
    answer = acme.put("/api/v1/secrets/api_token", json={"value": value})
    assert set(answer.json()["data"]) == {"name", "updated_at", "bindings"}
    assert value not in answer.text + acme.get("/api/v1/secrets").text
    for name in ("a-b", "1a", "a%20b", "x" * 64):
        error(acme.put(f"/api/v1/secrets/{name}", json={"value": value}), 422, "validation_failed")
    for bad in ({}, {"value": ""}, {"value": 5}, {"value": "x" * 65_537}):
        error(acme.put("/api/v1/secrets/other", json=bad), 422, "validation_failed")
    assert acme.delete("/api/v1/secrets/api_token").is_success
    error(acme.delete("/api/v1/secrets/api_token"), 404, "not_found")


@pytest.mark.parametrize("slug", ["", "e" * 81])
def test_a_destination_without_a_possible_name_is_refused(acme: httpx.Client, slug: str) -> None:
    body = {"value": "sealed", "bind": {"integrations": ["erp", slug]}}
    details = error(acme.put("/api/v1/secrets/bound", json=body), 422, "validation_failed")["details"]
    assert [each["pointer"] for each in details] == ["/bind/integrations/1"]
    assert "bound" not in {each["name"] for each in acme.get("/api/v1/secrets").json()["data"]}
