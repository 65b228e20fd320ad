"""People download their own data; administrators see, download and erase that of others, and owners that of their visitors."""

import io
import json
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.tenants import accounts
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

NEW_CODE = """
INSERT INTO email_code (tenant_id, id, door, email, digest, state, tries, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PEOPLE, VISITORS = "/console/appliance/people", "/console/settings/visitors"


@pytest.fixture
def leaver(staff: Running, request: pytest.FixtureRequest) -> str:
    login = f"{request.node.name.partition('[')[0].replace('_', '-')[:60]}@acme.test"
    staff.user(login, PASSWORD, "acme", "viewer")
    return login


@pytest.fixture
def guest(staff: Running, request: pytest.FixtureRequest) -> str:
    """An address without an account, with a code for a WebApp of acme and one of globex."""
    email = f"{request.node.name.replace('_', '-')[:60]}@guests.test"
    for tenant in ("acme", "globex"):
        values = (tenant, f"sgn_{tenant}_{email}", "webapp:shop", email, b"x", "sent", 0, 1, 2**50)
        db.write(partial(db.execute, NEW_CODE, values))
    return email


def files_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/zip"
    assert "attachment" in answer.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")}


def test_everybody_downloads_their_own_data(staff: Running, leaver: str) -> None:
    browser = Browser(staff)
    browser.sign_in(leaver, PASSWORD, "acme")
    page = browser.get(browser.at("acme", "/console/account")).text
    assert 'action="/console/account/data"' in page
    files = files_of(browser.post(browser.at("acme", "/console/account/data"), {}))
    assert files["account.json"]["person"][0]["login"] == leaver
    assert files["sign-ins.json"]["session"]


def test_an_administrator_sees_downloads_and_erases(signed_in: Callable[[str], Browser], leaver: str) -> None:
    browser = signed_in("owner@acme.test")
    user_id = accounts.find_known(leaver)[0].user_id
    page = browser.get(browser.at("acme", f"{PEOPLE}?login={leaver}")).text
    assert 'data-id="account"' in page
    assert "has an account" in page
    assert files_of(browser.post(browser.at("acme", f"{PEOPLE}/data"), {"login": user_id}))["memberships.json"]
    page = browser.post(browser.at("acme", f"{PEOPLE}/erase"), {"login": user_id, "typed_login": "somebody.else@acme.test"}).text
    assert "enter the login once more" in page.lower()
    assert accounts.has_account(leaver)

    page = browser.post(browser.at("acme", f"{PEOPLE}/erase"), {"login": user_id, "typed_login": leaver.upper()}).text
    former = accounts.find_former_name(user_id)
    assert former is not None
    assert 'data-testid="erased"' in page
    assert former.login in page
    assert not accounts.has_account(leaver)
    page = browser.get(browser.at("acme", f"{PEOPLE}?login={user_id}")).text
    assert "account was deleted" in page
    assert leaver not in page


def test_the_tenants_without_another_owner_are_named_and_need_a_tick(signed_in: Callable[[str], Browser], staff: Running) -> None:
    user_id = staff.user("only@lonely.test", PASSWORD, "lonely", "owner")
    browser = signed_in("owner@acme.test")
    assert "Leave without an owner: lonely" in browser.get(browser.at("acme", f"{PEOPLE}?login=only@lonely.test")).text
    form = {"login": user_id, "typed_login": "only@lonely.test"}
    answer = browser.post(browser.at("acme", f"{PEOPLE}/erase"), form)
    assert (answer.status_code, accounts.has_account("only@lonely.test")) == (409, True)
    browser.post(browser.at("acme", f"{PEOPLE}/erase"), form | {"leave": "yes"})
    assert not accounts.has_account("only@lonely.test")


def test_nobody_erases_themselves(signed_in: Callable[[str], Browser]) -> None:
    browser, login = signed_in("owner@acme.test"), "owner@acme.test"
    page = browser.get(browser.at("acme", f"{PEOPLE}?login={login}")).text
    assert "Another administrator can erase you" in page
    answer = browser.post(browser.at("acme", f"{PEOPLE}/erase"), {"login": login, "typed_login": login})
    assert (answer.status_code, accounts.has_account(login)) == (422, True)


def test_an_unknown_person_is_named(signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("owner@acme.test")
    answer = browser.get(browser.at("acme", f"{PEOPLE}?login=nobody"))
    assert (answer.status_code, "There is no user" in answer.text) == (404, True)
    for what in ("data", "erase"):
        assert browser.post(browser.at("acme", f"{PEOPLE}/{what}"), {"login": "nobody", "typed_login": "nobody"}).status_code == 404
    assert "Nothing is stored" in browser.get(browser.at("acme", f"{PEOPLE}?login=nobody@nowhere.test")).text
    assert 'data-testid="erased"' not in browser.get(browser.at("acme", f"{PEOPLE}?erased=anything")).text


def test_an_owner_exports_and_erases_a_visitor_of_their_tenant_only(signed_in: Callable[[str], Browser], guest: str) -> None:
    browser = signed_in("owner@globex.test")
    page = browser.get(browser.at("globex", f"{VISITORS}?login={guest}")).text
    assert 'data-id="email-codes"' in page
    assert "as a visitor" in page
    files = files_of(browser.post(browser.at("globex", f"{VISITORS}/data"), {"login": guest}))
    assert [row["tenant_id"] for row in files["email-codes.json"]["email_code"]] == ["globex"]
    page = browser.post(browser.at("globex", f"{VISITORS}/erase"), {"login": guest, "typed_login": guest}).text
    assert 'data-testid="erased"' in page
    assert db.rows("SELECT tenant_id FROM email_code WHERE email = ?", (guest,)) == [("acme",)]


def test_an_owner_reaches_no_account_by_the_page_for_visitors(signed_in: Callable[[str], Browser], leaver: str) -> None:
    browser = signed_in("owner@acme.test")
    assert "Nothing is stored" in browser.get(browser.at("acme", f"{VISITORS}?login={leaver}")).text
    browser.post(browser.at("acme", f"{VISITORS}/erase"), {"login": leaver, "typed_login": leaver})
    assert accounts.has_account(leaver)
