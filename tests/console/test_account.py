"""The account page: other sessions are ended by a button, and a new password ends all of them."""

import pytest

from appliance.testing.running import Running
from tests.console.browser import Browser

TENANT, PASSWORD, NEW = "selfish", "my own old password", "my own new password"


@pytest.fixture
def person(running: Running, request: pytest.FixtureRequest) -> str:
    login = f"{request.node.name.replace('_', '-')}@selfish.test"
    running.user(login, PASSWORD, TENANT, "viewer")
    return login


def signed_in(running: Running, login: str, password: str = PASSWORD) -> Browser:
    browser = Browser(running)
    assert "Sign out" in browser.sign_in(login, password, TENANT).text
    return browser


def is_signed_in(browser: Browser) -> bool:
    return "Sign out" in browser.get(browser.at(TENANT, "/console/account")).text


def test_other_sessions_end_and_this_one_stays(running: Running, person: str) -> None:
    here, there = signed_in(running, person), signed_in(running, person)
    page = here.get(here.at(TENANT, "/console/account")).text
    assert (page.count('data-testid="row"'), page.count("this browser")) == (4, 1)
    page = here.post(here.at(TENANT, "/console/account/sessions/end"), {}).text
    assert (page.count('data-testid="row"'), page.count("this browser")) == (1, 1)
    assert (is_signed_in(here), is_signed_in(there)) == (True, False)


def test_a_new_password_ends_every_session(running: Running, person: str) -> None:
    here, there = signed_in(running, person), signed_in(running, person)
    form = {"old": PASSWORD, "password": NEW, "again": NEW}
    assert "Sign in" in here.post(here.at(TENANT, "/console/account/password"), form).text
    assert (is_signed_in(here), is_signed_in(there)) == (False, False)
    assert is_signed_in(signed_in(running, person, NEW))
    assert "wrong" in Browser(running).sign_in(person, PASSWORD, TENANT).text
    with running.api(TENANT) as api:
        (entry,) = api.get("/api/v1/logs/audit", params={"action": "password.change"}).json()["data"]
    assert person in entry["fields"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old": "not my password"}, "This is not your current password."),
        ({"again": "something else"}, "The two new passwords differ"),
        ({"password": "short", "again": "short"}, "A password must have 12 to 1000 characters"),
        ({"password": PASSWORD, "again": PASSWORD}, "The new password must differ from the old one"),
    ],
    ids=["old", "again", "short", "same"],
)
def test_an_invalid_password_changes_nothing(running: Running, change: dict[str, str], message: str) -> None:
    login = f"careless-{len(message)}@selfish.test"
    running.user(login, PASSWORD, TENANT, "viewer")
    here = signed_in(running, login)
    page = here.post(here.at(TENANT, "/console/account/password"), {"old": PASSWORD, "password": NEW, "again": NEW, **change})
    assert (page.status_code, message in page.text) == (422, True)
    assert is_signed_in(here)
    assert is_signed_in(signed_in(running, login))
