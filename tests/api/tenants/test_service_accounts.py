"""/api/v1/service-accounts: who is responsible by default, what changes, and what its keys get and lose."""

import json
from collections.abc import Iterator

import httpx
import pytest

from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES, people
from appliance.tenants.keys import KeySpec, keys
from appliance.testing.running import Running
from tests.api.resources import fresh

PATH = "/api/v1/service-accounts"


@pytest.fixture(scope="module")
def login(running: Running) -> str:
    login = f"{fresh('keeper')}@acme.test"
    running.user(login, "a long enough password", "acme", "owner")
    return login


@pytest.fixture
def ann(running: Running, login: str) -> Iterator[httpx.Client]:
    """The API with a key of a person."""
    scope = TenantScope("acme", f"user:{people.find_user(login).id}", ALL_SCOPES)
    text = keys.issue_key(scope, running.services.sealer, KeySpec("hers", sorted(ALL_SCOPES)))[1]
    with running.client("acme.localhost", {"X-API-Key": text}) as client:
        yield client


def create(client: httpx.Client, *scopes: str) -> str:
    body = {"id": fresh("robot"), "title": "Robot", "scopes": scopes or ("skills.read",)}
    answer = client.post(PATH, json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["data"]["id"])


def issue(client: httpx.Client, account: str, *scopes: str) -> dict[str, str]:
    answer = client.post(f"{PATH}/{account}/keys", json={"name": "its", "scopes": scopes or ("skills.read",)})
    assert answer.status_code == 201, answer.text
    return dict(answer.json()["data"])


def test_the_person_behind_the_calling_key_is_responsible_by_default(ann: httpx.Client, acme: httpx.Client, login: str) -> None:
    account = create(ann)
    assert ann.get(f"{PATH}/{account}").json()["data"]["responsible"] == login
    refused = acme.post(PATH, json={"id": fresh("robot"), "title": "Robot", "scopes": ["skills.read"]})
    assert (refused.status_code, refused.json()["error"]["details"][0]["pointer"]) == (422, "/responsible")


def test_a_disabled_account_refuses_its_keys_and_an_enabled_one_takes_them(ann: httpx.Client, running: Running) -> None:
    account = create(ann)
    with running.client("acme.localhost", {"X-API-Key": issue(ann, account)["key"]}) as its:
        answers = [its.get("/api/v1/skills")]
        for disabled in (True, False):
            assert ann.patch(f"{PATH}/{account}", json={"disabled": disabled}).json()["data"]["disabled"] is disabled
            answers.append(its.get("/api/v1/skills"))
        assert [each.status_code for each in answers] == [200, 401, 200]
        assert answers[1].json()["error"]["code"] == "revoked_api_key"
        ann.patch(f"{PATH}/{account}", json={"scopes": ["documents.read"]}).raise_for_status()
        refused = its.get("/api/v1/skills").json()["error"]
        assert (refused["code"], "service account that issued it no longer has that scope" in refused["message"]) == (
            "scope_missing", True,
        )  # fmt: skip
        assert ann.delete(f"{PATH}/{account}").json()["data"] == {"deleted": account}
        assert its.get("/api/v1/skills").status_code == 401
    assert ann.get(f"{PATH}/{account}").status_code == 404


def test_a_key_of_an_account_works_like_others(ann: httpx.Client, running: Running) -> None:
    """Rotation by itself, a quota, recorded requests and a key below it, each in the name of the account in the trail."""
    account = create(ann, "skills.read", "keys.read", "keys.write")
    key = issue(ann, account, "skills.read", "keys.read", "keys.write")
    changed = ann.patch(f"/api/v1/keys/{key['id']}", json={"daily_requests": 3, "records_requests": True})
    assert (changed.json()["data"]["daily_requests"], changed.json()["data"]["issuer"]) == (3, f"service:{account}")
    with running.client("acme.localhost", {"X-API-Key": key["key"]}) as its:
        rotated = its.post(f"/api/v1/keys/{key['id']}/rotate", json={"overlap_seconds": 60}).json()["data"]
        below = its.post("/api/v1/keys", json={"name": "below", "scopes": ["skills.read"]}).json()["data"]
        assert (rotated["issuer"], below["issuer"]) == (f"service:{account}", f"key:{key['id']}")
        assert [its.get("/api/v1/skills").status_code for _ in range(2)] == [200, 429]
    with running.client("acme.localhost", {"X-API-Key": below["key"]}) as child:
        assert child.get("/api/v1/skills").status_code == 429, "requests count for the keys above as well"
    running.services.limits.key_requests.flush()
    assert ann.get(f"/api/v1/keys/{key['id']}/requests").json()["data"]
    entries = ann.get("/api/v1/logs/audit", params={"actor": f"service:{account}"}).json()["data"]
    assert {each["action"] for each in entries} >= {"key.rotate", "key.issue"}
    assert {json.loads(each["fields"])["api_key"] for each in entries} <= {key["id"], rotated["id"], below["id"]}


def test_lists_are_in_order_and_without_deleted_accounts(ann: httpx.Client) -> None:
    first, second, third = (create(ann) for _ in range(3))
    ann.delete(f"{PATH}/{second}").raise_for_status()
    listed = [each["id"] for each in ann.get(f"{PATH}?limit=500").json()["data"]]
    assert [each for each in listed if each in (first, second, third)] == sorted([first, third])
    newest = ann.get(f"{PATH}?limit=1&sort=-created_at").json()["data"]
    assert [each["id"] for each in newest] == [third]
