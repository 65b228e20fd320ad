"""Provisioning is set up by REST: SCIM tokens are issued, listed, rotated and revoked with a key of the appliance."""

import json

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.testing.running import Running
from tests.operations.conftest import issue
from tests.operations.examples import PROVIDERS
from tests.operations.test_operating import BASE, data, entries, error

TOKENS, DAY_MS = f"{BASE}/scim-tokens", 86_400_000


@pytest.fixture(autouse=True)
def no_tokens(live: Running) -> None:
    db.write(lambda: db.execute("DELETE FROM scim_token"))


def use(live: Running, text: str) -> int:
    """The status of a SCIM request of the provider with this token."""
    with live.client("localhost", {"Authorization": f"Bearer {text}"}) as client:
        return client.get("/scim/v2/Users").status_code


def test_a_token_from_its_issue_to_its_revocation(live: Running, operator: httpx.Client) -> None:
    key = entries(operator, action="key.issue")[-1]["subject"]
    created = operator.post(TOKENS, json={"provider": "corp", "days": 90})
    first = data(created, 201)
    assert created.headers["Location"] == f"{TOKENS}/{first['id']}"
    assert (first["state"], first["url"], first["last4"]) == ("active", f"{live.config.base_url}/scim/v2", first["token"][-4:])
    end = clock.parse_rfc3339(first["expires_at"], pointer="")
    assert abs(end - clock.now_ms() - 90 * DAY_MS) < 60_000
    assert use(live, first["token"]) == 200
    assert "last_used_at" in data(operator.get(f"{TOKENS}/{first['id']}"))

    second = data(operator.post(f"{TOKENS}/{first['id']}/rotate", json={"overlap_seconds": 3600}), 201)
    assert (second["rotated_from"], second["state"]) == (first["id"], "active")
    replaced = data(operator.get(f"{TOKENS}/{first['id']}"))
    assert (replaced["state"], replaced["replaced_by"], "token" in replaced) == ("replaced", second["id"], False)
    assert (use(live, first["token"]), use(live, second["token"])) == (200, 200)
    assert error(operator.post(f"{TOKENS}/{first['id']}/rotate")) == (409, "conflict")

    assert data(operator.delete(f"{TOKENS}/{second['id']}"))["state"] == "revoked"
    assert (use(live, first["token"]), use(live, second["token"])) == (200, 401)
    assert data(operator.delete(f"{TOKENS}/{second['id']}"))["state"] == "revoked"
    assert error(operator.post(f"{TOKENS}/{second['id']}/rotate")) == (409, "conflict")

    listed = operator.get(TOKENS)
    assert [(each["id"], each["state"]) for each in data(listed)] == [(second["id"], "revoked"), (first["id"], "replaced")]
    assert first["token"] not in listed.text
    trail = [(each["action"], each["actor"], each["subject"]) for each in entries(operator, actor=f"key:{key}")]
    assert trail == [
        ("scim_token.create", f"key:{key}", first["id"]), ("scim_token.rotate", f"key:{key}", first["id"]),
        ("scim_token.revoke", f"key:{key}", second["id"]),
    ]  # fmt: skip
    assert first["token"] not in json.dumps(entries(operator))


def test_a_token_lasts_a_year_unless_another_end_is_requested(operator: httpx.Client) -> None:
    usual = data(operator.post(TOKENS, json={"provider": "corp"}), 201)
    end = clock.parse_rfc3339(usual["expires_at"], pointer="")
    assert abs(end - clock.now_ms() - 365 * DAY_MS) < 60_000
    endless = data(operator.post(TOKENS, json={"provider": "corp", "days": None}), 201)
    assert "expires_at" not in endless
    rotated = data(operator.post(f"{TOKENS}/{endless['id']}/rotate"), 201)
    assert "expires_at" not in rotated
    assert data(operator.get(f"{TOKENS}/{endless['id']}"))["state"] == "expired", "without an overlap it ends at once"


def test_an_overlap_makes_no_token_last_longer(operator: httpx.Client) -> None:
    short = data(operator.post(TOKENS, json={"provider": "corp", "days": 1}), 201)
    data(operator.post(f"{TOKENS}/{short['id']}/rotate", json={"overlap_seconds": 2_592_000}), 201)
    assert data(operator.get(f"{TOKENS}/{short['id']}"))["expires_at"] == short["expires_at"]


def test_what_is_refused_says_what_to_do(operator: httpx.Client) -> None:
    for body, pointer in (
        ({"provider": "nobody"}, "/provider"), ({"provider": "plain"}, "/provider"), ({"provider": "corp", "days": 0}, "/days"),
        ({"provider": "corp", "days": 4000}, "/days"), ({}, "/provider"),
    ):  # fmt: skip
        refused = operator.post(TOKENS, json=body)
        assert error(refused) == (422, "validation_failed"), body
        assert pointer in refused.text, body
    assert "`scim: true`" in operator.post(TOKENS, json={"provider": "plain"}).json()["error"]["message"]
    assert data(operator.get(TOKENS)) == []
    for method, path in (("GET", ""), ("POST", "/rotate"), ("DELETE", "")):
        assert error(operator.request(method, f"{TOKENS}/sct_nobody{path}")) == (404, "not_found")


@pytest.mark.parametrize("provider", ["former", "plain"])
def test_a_token_of_a_provider_that_is_gone_or_uses_scim_no_more_can_only_be_revoked(operator: httpx.Client, provider: str) -> None:
    token = data(operator.post(TOKENS, json={"provider": "corp"}), 201)["id"]
    db.write(lambda: db.execute("UPDATE scim_token SET provider = ?", (provider,)))
    refused = operator.post(f"{TOKENS}/{token}/rotate")
    assert (*error(refused), provider in refused.json()["error"]["message"]) == (409, "conflict", True)
    assert [each["id"] for each in data(operator.get(TOKENS, params={"provider": provider}))] == [token]
    assert data(operator.delete(f"{TOKENS}/{token}"))["state"] == "revoked"


def test_repeating_a_request_issues_one_token_and_shows_it_once(operator: httpx.Client) -> None:
    once = {"Idempotency-Key": "scim-1"}
    first, again = (operator.post(TOKENS, json={"provider": "corp"}, headers=once) for _ in range(2))
    assert (data(first, 201)["id"], again.headers["Idempotency-Replayed"]) == (data(again, 201)["id"], "true")
    assert ("token" in data(first, 201), "token" in data(again, 201)) == (True, False)
    assert len(data(operator.get(TOKENS))) == 1


def test_the_list_has_pages_and_a_filter(operator: httpx.Client) -> None:
    tokens = [data(operator.post(TOKENS, json={"provider": "corp"}), 201)["id"] for _ in range(3)]
    first = operator.get(TOKENS, params={"limit": "2", "provider": "corp"})
    rest = operator.get(TOKENS, params={"limit": "2", "provider": "corp", "cursor": first.json()["meta"]["next_cursor"]})
    assert [each["id"] for each in data(first) + data(rest)] == tokens[::-1]
    assert data(operator.get(TOKENS, params={"provider": "plain"})) == []


def test_tokens_have_a_scope_of_their_own(live: Running, operator: httpx.Client) -> None:
    token = data(operator.post(TOKENS, json={"provider": "corp"}), 201)["id"]
    others = ("appliance.read", "appliance.tenants", "appliance.users", "appliance.backups")
    with live.client(live.config.domains.base, {"X-API-Key": issue(live, *others)}) as client:
        for method, path in (("POST", ""), ("POST", f"/{token}/rotate"), ("DELETE", f"/{token}")):
            refused = client.request(method, TOKENS + path, json={"provider": "corp"} if not path else None)
            assert (*error(refused), refused.json()["error"]["scope"]) == (403, "scope_missing", "appliance.scim")
        assert data(client.get(f"{TOKENS}/{token}"))["state"] == "active"
    with live.client(live.config.domains.base, {"X-API-Key": issue(live, "appliance.scim")}) as client:
        assert data(client.delete(f"{TOKENS}/{token}"))["state"] == "revoked"
        assert error(client.get(TOKENS)) == (403, "scope_missing")


def test_tenants_of_the_provider_see_which_key_did_it(live: Running, operator: httpx.Client) -> None:
    assert PROVIDERS[0]["roles"][0]["tenant"] == "acme"
    key = entries(operator, action="key.issue")[-1]["subject"]
    token = data(operator.post(TOKENS, json={"provider": "corp"}), 201)["id"]
    with live.api("acme") as client:
        (entry,) = data(client.get("/api/v1/logs/audit", params={"subject": token}))
    assert (entry["action"], entry["actor"]) == ("scim_token.create", f"appliance:{key}")
