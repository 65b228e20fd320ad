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
    assert (page.count('data-testid="row"'), page.count("this browser<")) == (2, 1)
    assert page.count(f"in {TENANT}<") == 2
    page = here.post(here.at(TENANT, "/console/account/sessions/end"), {}).text
    assert (page.count('data-testid="row"'), page.count("this browser<")) == (1, 1)
    assert (is_signed_in(here), is_signed_in(there)) == (True, False)


def test_one_other_sign_in_ends_by_its_button(running: Running, person: str) -> None:
    here, there = signed_in(running, person), signed_in(running, person)
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0 <b>"
    third = Browser(running)
    third.get(third.at(TENANT, "/console/"))
    third.post(third.url, {"login": person, "password": PASSWORD}, **{"User-Agent": agent})
    page = here.get(here.at(TENANT, "/console/account")).text
    assert (page.count("Firefox on Linux</strong>"), page.count("from 127.0.0.1"), "Gecko" in page) == (1, 6, False)
    path = page.partition('aria-label="Sign out Firefox on Linux"')[2].partition('action="')[2].partition('"')[0]
    page = here.post(here.at(TENANT, path), {}).text
    assert (page.count('data-testid="row"'), "Firefox" in page) == (2, False)
    assert [is_signed_in(each) for each in (here, there, third)] == [True, True, False]


def test_all_sessions_end_at_once(running: Running, person: str) -> None:
    here, there = signed_in(running, person), signed_in(running, person)
    assert 'name="password"' in here.post(here.at(TENANT, "/console/account/sessions/end-all"), {}).text
    assert here.url.startswith(here.at("", "/sign-in"))
    assert (is_signed_in(here), is_signed_in(there)) == (False, False)


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
        ({"password": "short", "again": "short"}, "A password must have 15 to 1000 characters"),
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
