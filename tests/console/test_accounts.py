"""Disabled and deleted accounts as people, keys and pages meet them."""

from collections.abc import Iterator

import httpx
import pytest

from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES, accounts, people
from appliance.tenants.keys import KeySpec, keys
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

TENANT, STAYS, HERE = "exchange", "stays@exchange.test", "/api/v1/tenant"
WRONG = "The login or the password is wrong"


@pytest.fixture
def leaver(running: Running, request: pytest.FixtureRequest) -> Iterator[str]:
    """The login of an owner of a tenant with another owner; their account is deleted afterwards."""
    if not people.list_members(running.tenant(TENANT)):
        running.user(STAYS, PASSWORD, TENANT, "owner")
    login = f"{request.node.name.replace('_', '-')[:40]}@exchange.test"
    running.user(login, PASSWORD, TENANT, "owner")
    yield login
    if any(each.login == login for each in accounts.list_accounts()):
        accounts.delete_account(login, may_leave_ownerless=True)


def sign_in(running: Running, login: str, password: str = PASSWORD) -> tuple[Browser, httpx.Response]:
    browser = Browser(running)
    return browser, browser.sign_in(login, password, TENANT)


def issue(running: Running, user_id: str) -> str:
    owner = TenantScope(TENANT, f"user:{user_id}", ALL_SCOPES)
    return keys.issue_key(owner, running.services.sealer, KeySpec("theirs", sorted(ALL_SCOPES), "test"))[1]


def test_a_disabled_person_is_told_so_only_with_the_right_password(running: Running, leaver: str) -> None:
    accounts.disable_account(leaver)
    _, page = sign_in(running, leaver)
    assert (page.status_code, "This account is disabled" in page.text, WRONG in page.text) == (403, True, False)
    pages = [sign_in(running, login, "a wrong password indeed")[1] for login in (leaver, "nobody@exchange.test")]
    assert [(page.status_code, WRONG in page.text, "is disabled" in page.text) for page in pages] == [(401, True, False)] * 2
    accounts.enable_account(leaver)
    assert "Sign out" in sign_in(running, leaver)[1].text


def test_disabling_ends_sessions_on_every_host(running: Running, leaver: str) -> None:
    browser, page = sign_in(running, leaver)
    assert "Sign out" in page.text
    accounts.disable_account(leaver)
    assert "Sign in" in browser.get(browser.at(TENANT, "/console/processes")).text
    assert browser.url.startswith(browser.at("", "/sign-in"))
    accounts.enable_account(leaver)
    assert "Sign in" in browser.get(browser.at("", "/")).text


def test_disabling_stops_keys_and_their_event_streams(running: Running, leaver: str) -> None:
    text = issue(running, people.find_user(leaver).id)
    with running.client(f"{TENANT}.localhost", {"X-API-Key": text}) as client:
        with client.stream("GET", "/api/v1/logs?follow=true") as answer:
            assert answer.status_code == 200
            pieces = answer.iter_bytes()
            assert next(pieces)
            accounts.disable_account(leaver)
            for _ in pieces:  # comes to its end only when the server ends the stream
                pass
        refused = client.get(HERE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "revoked_api_key")
        assert "is disabled; it works again when the account is enabled" in refused.json()["error"]["message"]
        accounts.enable_account(leaver)
        assert client.get(HERE).status_code == 200


def test_members_show_who_is_disabled_and_keys_can_be_adopted_at_the_removal(running: Running, leaver: str) -> None:
    user_id = people.find_user(leaver).id
    text = issue(running, user_id)
    accounts.disable_account(leaver)
    browser, _ = sign_in(running, STAYS)
    assert browser.get(browser.at(TENANT, "/console/people")).text.count('data-state="disabled"') == 1
    assert "The account of the person who issued it is disabled." in browser.get(browser.at(TENANT, "/console/keys")).text
    with running.api(TENANT) as api:
        members = {each["login"]: each["disabled"] for each in api.get("/api/v1/members").json()["data"]}
        assert members == {STAYS: False, leaver: True}
        (key,) = api.get(f"/api/v1/members/{user_id}/authority").json()["data"]["keys"]
        assert api.delete(f"/api/v1/members/{user_id}", params={"adopt_keys": key["id"]}).status_code == 200
    with running.client(f"{TENANT}.localhost", {"X-API-Key": text}) as client:
        assert client.get(HERE).status_code == 200


def test_what_a_deleted_person_did_keeps_their_name(running: Running, leaver: str) -> None:
    user_id = people.find_user(leaver).id
    _, text = issue(running, user_id), leaver
    accounts.delete_account(leaver)
    running.user(leaver, PASSWORD, TENANT, "viewer")  # somebody else with the login
    browser, _ = sign_in(running, STAYS)
    page = browser.get(browser.at(TENANT, f"/console/audit?actor=user:{user_id}")).text
    assert f"{text} (deleted user)" in page
    (entry,) = [each for each in audit(running) if each["action"] == "user.delete" and each["subject"] == user_id]
    assert leaver in entry["fields"]


def test_a_removed_person_keeps_their_name(running: Running, leaver: str) -> None:
    user_id = people.find_user(leaver).id
    issue(running, user_id)
    people.remove_member(running.tenant(TENANT), user_id)
    browser, _ = sign_in(running, STAYS)
    assert f"{leaver} (former member)" in browser.get(browser.at(TENANT, f"/console/audit?actor=user:{user_id}")).text


def audit(running: Running) -> list[dict[str, str]]:
    with running.api(TENANT) as api:
        entries: list[dict[str, str]] = api.get("/api/v1/logs/audit", params={"action": "user.delete"}).json()["data"]
        return entries
