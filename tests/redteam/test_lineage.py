"""Keys, sessions and event streams have no more authority than their issuers have now, and end with them."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES, people
from appliance.tenants.keys import KeySpec, keys
from appliance.testing.running import Running
from tests.api.resources import Resources
from tests.console.browser import Browser

KEYS, HERE = "/api/v1/keys", "/api/v1/tenant"
PASSWORD = "correct horse battery"


def number() -> str:
    """A text that no other test uses."""
    return str(db.rows("SELECT count(*) FROM person")[0][0])


# -- finding 3: a removed owner's key goes on and issues another


@pytest.fixture
def leaver(running: Running) -> Iterator[tuple[str, httpx.Client]]:
    """An owner of acme who is about to leave, and a client with a key that they issued."""
    if not any(member.role == "owner" for member in people.list_members(running.tenant("acme"))):
        running.user(f"stays-{number()}@acme.test", PASSWORD, "acme", "owner")
    login = f"leaver-{number()}@acme.test"
    user_id = running.user(login, PASSWORD, "acme", "owner")
    owner = TenantScope("acme", f"user:{user_id}", ALL_SCOPES)
    _, text = keys.issue_key(owner, running.services.sealer, KeySpec("theirs", sorted(ALL_SCOPES), "test"))
    with running.client("acme.localhost", {"X-API-Key": text}) as client:
        yield user_id, client


def test_a_removed_owners_key_answers_nothing_and_issues_nothing(acme: httpx.Client, leaver: tuple[str, httpx.Client]) -> None:
    user_id, client = leaver
    assert client.get(HERE).status_code == 200
    acme.delete(f"/api/v1/members/{user_id}").raise_for_status()
    for answer in (client.get(HERE), client.post(KEYS, json={"name": "next", "scopes": ["logs.read"]}), client.get(KEYS)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "revoked_api_key")
        message = answer.json()["error"]["message"]
        assert "is no longer a member of this tenant" in message
        assert "owner of the tenant can adopt it" in message
        assert user_id not in answer.text


def test_mcp_refuses_a_removed_owners_key(acme: httpx.Client, leaver: tuple[str, httpx.Client]) -> None:
    user_id, client = leaver
    acme.delete(f"/api/v1/members/{user_id}").raise_for_status()
    answer = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "revoked_api_key")


def test_a_demoted_issuers_key_shrinks_with_them_and_grows_again(
    running: Running, acme: httpx.Client, leaver: tuple[str, httpx.Client]
) -> None:
    user_id, client = leaver
    login = next(m["login"] for m in acme.get("/api/v1/members").json()["data"] if m["user_id"] == user_id)
    assert client.get(KEYS).status_code == 200
    acme.post("/api/v1/members", json={"login": login, "role": "viewer"}).raise_for_status()
    refused = client.post(KEYS, json={"name": "next", "scopes": ["logs.read"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing")
    assert "or service account that issued it no longer has that scope" in refused.json()["error"]["message"]
    assert client.get(KEYS).status_code == 200, "a viewer reads keys"
    acme.post("/api/v1/members", json={"login": login, "role": "owner"}).raise_for_status()
    assert client.post(KEYS, json={"name": "next", "scopes": ["logs.read"]}).status_code == 201


STREAMS: dict[str, Callable[[Resources], str]] = {
    "a collection's changes": lambda ours: f"/api/v1/datapool/{ours.collection()}/events",
    "the logs": lambda ours: "/api/v1/logs?follow=true",
    "an execution": lambda ours: "/api/v1/processes/{process}/executions/{execution}/events".format(**start_waiting(ours)),
}


def start_waiting(ours: Resources) -> dict[str, str]:
    """An execution that waits for an hour."""
    process = ours.process(steps=[{"id": "pause", "wait": {"for": "1h"}}])
    execution = ours.client.post(f"/api/v1/processes/{process}/execute", json={}).json()["data"]
    return {"process": process, "execution": execution["execution_id"]}


@pytest.mark.parametrize("path", STREAMS)
def test_an_open_event_stream_ends_with_its_key(
    ours: Resources, acme: httpx.Client, leaver: tuple[str, httpx.Client], path: str
) -> None:
    user_id, client = leaver
    with client.stream("GET", STREAMS[path](ours)) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_bytes()
        assert next(pieces)
        acme.delete(f"/api/v1/members/{user_id}").raise_for_status()
        for piece in pieces:  # comes to its end only when the server ends the stream
            assert b"still here" not in piece
    assert client.get(HERE).status_code == 401


# -- finding 5: children are bound by what binds their parents


WIDER: list[tuple[dict[str, Any], str]] = [
    ({"rate_limit": {"requests": 1_000_000, "window_s": 1}}, "/rate_limit"),
    ({"rate_limit": {"requests": 6, "window_s": 3600}}, "/rate_limit"),
    ({"rate_limit": {"requests": 1, "window_s": 1}}, "/rate_limit"),
    ({"allowed_ips": ["0.0.0.0/0"]}, "/allowed_ips/0"),
    ({"allowed_ips": ["127.0.0.1", "127.0.0.2"]}, "/allowed_ips/1"),
    ({"allowed_ips": ["::/0"]}, "/allowed_ips/0"),
    ({"expires_at": "2 years"}, "/expires_at"),
]


@pytest.mark.parametrize(("more", "pointer"), WIDER)
def test_a_child_wider_than_its_parent_is_refused_where_it_is(running: Running, more: dict[str, Any], pointer: str) -> None:
    parent = running.key("acme", rate_requests=5, rate_window_s=3600, allowed_ips=["127.0.0.1/32"], expires_in_days=30)
    if "expires_at" in more:
        more = {"expires_at": clock.rfc3339(clock.now_ms() + 31 * keys.DAY)}
    with running.client("acme.localhost", {"X-API-Key": parent}) as client:
        answer = client.post(KEYS, json={"name": "child", "scopes": ["logs.read"], **more})
    assert (answer.status_code, answer.json()["error"]["details"][0]["pointer"]) == (422, pointer)
    assert "ask an owner to do it in the console" in answer.json()["error"]["message"]


def test_a_child_without_limits_of_its_own_gets_its_parents(running: Running) -> None:
    parent = running.key("acme", rate_requests=5, rate_window_s=3600, allowed_ips=["127.0.0.1/32"], expires_in_days=30)
    with running.client("acme.localhost", {"X-API-Key": parent}) as client:
        child = client.post(KEYS, json={"name": "child", "scopes": ["logs.read"]}).json()["data"]
        above = client.get(f"{KEYS}/{child['issuer'].removeprefix('key:')}").json()["data"]
    for name in ("rate_limit", "allowed_ips", "expires_at"):
        assert child[name] == above[name], name


def test_requests_of_a_child_count_on_every_key_above(running: Running) -> None:
    parent = running.key("acme", rate_requests=6, rate_window_s=3600)
    with running.client("acme.localhost", {"X-API-Key": parent}) as client:
        child = client.post(KEYS, json={"name": "child", "scopes": ["keys.write", "keys.read"]}).json()["data"]["key"]
    with running.client("acme.localhost", {"X-API-Key": child}) as client:
        grandchild = client.post(KEYS, json={"name": "child", "scopes": ["keys.read"]}).json()["data"]["key"]
    with running.client("acme.localhost", {"X-API-Key": grandchild}) as client:
        answers = [client.get(HERE) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429]
    assert answers[3].headers["RateLimit"].startswith('"default";r=0;'), "the tightest of the three windows is shown"
    assert "the key that issued this one" in answers[4].json()["error"]["message"]
    with running.client("acme.localhost", {"X-API-Key": parent}) as client:
        assert client.get(HERE).status_code == 429


# -- adoption


def test_an_owner_adopts_an_ended_key(running: Running, acme: httpx.Client, leaver: tuple[str, httpx.Client]) -> None:
    user_id, client = leaver
    mine = client.get(KEYS, params={"limit": 500}).json()["data"]
    (theirs,) = [each for each in mine if each["issuer"] == f"user:{user_id}"]
    acme.delete(f"/api/v1/members/{user_id}").raise_for_status()
    ended = acme.get(f"{KEYS}/{theirs['id']}").json()["data"]
    assert (ended["effective_scopes"], "no longer a member" in ended["ended"]) == ([], True)
    with running.api("acme", ["keys.write"]) as narrow:
        assert narrow.post(f"{KEYS}/{theirs['id']}/adopt").json()["error"]["code"] == "scope_missing"
    adopted = acme.post(f"{KEYS}/{theirs['id']}/adopt")
    assert adopted.status_code == 200, adopted.text
    assert "ended" not in adopted.json()["data"]
    assert client.get(HERE).status_code == 200
    trail = acme.get("/api/v1/logs/audit", params={"subject": theirs["id"]}).json()["data"]
    assert [each["action"] for each in trail][:1] == ["key.adopt"]


# -- finding 6: signing out on one host leaves the other


@pytest.fixture
def browser(running: Running) -> Browser:
    """Somebody who is signed in to acme and globex in one browser."""
    login = f"both-{number()}@acme.test"
    running.user(login, PASSWORD, "acme", "operator")
    running.tenant("globex")
    people.add_member(running.tenant("globex"), login, "viewer")
    browser = Browser(running)
    assert browser.sign_in(login, PASSWORD, "acme").status_code == 200
    assert browser.get(browser.at("globex", "/console/processes")).status_code == 200
    return browser


def is_signed_in(browser: Browser, tenant: str) -> bool:
    browser.get(browser.at(tenant, "/console/processes"))
    return urlsplit(browser.url).path == "/console/processes"


SIGN_OUT: dict[str, Callable[[Browser], str]] = {
    "on the base host": lambda browser: browser.at("", "/sign-out"),
    "on a tenant's host": lambda browser: browser.at("acme", "/console/sign-out"),
}


@pytest.mark.parametrize("where", SIGN_OUT)
def test_signing_out_anywhere_signs_this_browser_out_everywhere(running: Running, browser: Browser, where: str) -> None:
    other = Browser(running)
    cookies = {host: dict(jar) for host, jar in browser.cookies.items()}
    login = str(db.rows("SELECT login FROM person ORDER BY created_at DESC, id DESC LIMIT 1")[0][0])
    assert other.sign_in(login, PASSWORD, "acme").status_code == 200
    browser.post(SIGN_OUT[where](browser), {})
    assert urlsplit(browser.url).path == "/sign-in"
    for tenant in ("acme", "globex"):
        browser.cookies = {host: dict(jar) for host, jar in cookies.items()}
        assert not is_signed_in(browser, tenant), f"the very session of {tenant} has ended, not only its cookie"
    assert is_signed_in(other, "acme"), "another browser of the same person is not signed out"


def test_signing_out_ends_pending_sign_in_codes(browser: Browser) -> None:
    response = browser.send("GET", browser.at("acme", "/hand-over?tenant=acme&state=s&to=/console/"), None, {})
    assert response.status_code in (303, 404)
    handed = browser.send("GET", browser.at("", "/hand-over?tenant=acme&state=s&to=/console/"), None, {})
    assert "code=" in handed.headers["Location"]
    before = db.rows("SELECT count(*) FROM session WHERE kind = 'enter'")[0][0]
    browser.post(browser.at("", "/sign-out"), {})
    assert db.rows("SELECT count(*) FROM session WHERE kind = 'enter'")[0][0] == before - 1
