"""A password that the appliance has made up signs in once, to choose an own one, and only for some days."""

from itertools import count
from urllib.parse import urlsplit

import pytest

from appliance.core import clock
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import InvitationSpec, invitations, people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.sign_in.factor_holder import Holder

TEMPORARY, OWN = "Xk3-printed-by-a-command", "seven green bottles hum quietly"
HERE, SESSION = "/sign-in/password", "__Host-gos"
DAY_MS = 86_400_000
_numbers = count(1)


@pytest.fixture
def login(staff: Running) -> str:
    """A viewer of acme with a temporary password."""
    name = f"newcomer{next(_numbers)}@acme.test"
    people.create_user(name, TEMPORARY, expires_at=clock.now_ms() + DAY_MS)
    people.add_member(staff.tenant("acme"), name, "viewer")
    return name


@pytest.fixture
def browser(staff: Running) -> Browser:
    return Browser(staff)


def choose(browser: Browser, password: str = OWN, again: str | None = None) -> tuple[int, str]:
    """Send the form for an own password: status and text of the page that follows."""
    page = browser.post(browser.at("", HERE), {"password": password, "again": password if again is None else again})
    return page.status_code, page.text


def has_session(browser: Browser) -> bool:
    return any(SESSION in jar for jar in browser.cookies.values())


def test_the_first_sign_in_asks_for_an_own_password_and_goes_on(browser: Browser, login: str) -> None:
    browser.get(browser.at("acme", "/console/executions?state=failed"))
    page = browser.post(browser.url, {"login": login, "password": TEMPORARY})
    assert (page.status_code, urlsplit(browser.url).path) == (200, HERE)
    assert login in page.text
    assert not has_session(browser)
    status, _ = choose(browser)
    assert (status, browser.url) == (200, browser.at("acme", "/console/executions?state=failed"))
    assert people.check_password(login, OWN).password_expires_at is None
    about = audit.AuditFilter(subject=people.find_user(login).id)
    entries = audit.list_entries(TenantScope("acme", "system"), about, PageRequest(9))
    assert "password.replace_temporary" in [each.action for each in entries.items]
    later = Browser(browser.running)
    later.sign_in(login, OWN, "acme")
    assert later.url == later.at("acme", "/console/")
    stranger = Browser(browser.running)
    assert stranger.sign_in(login, TEMPORARY, "acme").status_code == 401


def test_nothing_opens_before_it_is_chosen(browser: Browser, login: str) -> None:
    browser.sign_in(login, TEMPORARY, "acme")
    for path in ("/", "/factors/new", "/hand-over?tenant=acme&state=s"):
        browser.get(browser.at("", path))
        assert urlsplit(browser.url).path == "/sign-in", path
    browser.get(browser.at("acme", "/console/"))
    assert urlsplit(browser.url).path == "/sign-in"
    browser.post(browser.at("", "/sign-in/factor"), {"code": "000000"})
    assert not has_session(browser)


def test_an_own_password_follows_the_rules_and_is_another_one(browser: Browser, login: str) -> None:
    browser.sign_in(login, TEMPORARY, "acme")
    for password, again, problem in (
        (OWN, f"{OWN}!", "differ"), ("short", "short", "15"), (TEMPORARY, TEMPORARY, "another than the temporary one"),
    ):  # fmt: skip
        status, text = choose(browser, password, again)
        assert (status, problem in text) == (422, True), (problem, text)
    assert not has_session(browser)
    assert choose(browser)[0] == 200
    assert has_session(browser)


def test_a_temporary_password_ends_after_its_days(staff: Running, browser: Browser) -> None:
    login = f"late{next(_numbers)}@acme.test"
    people.create_user(login, TEMPORARY, expires_at=clock.now_ms() - 1)
    people.add_member(staff.tenant("acme"), login, "viewer")
    page = browser.sign_in(login, TEMPORARY, "acme")
    assert page.status_code == 403
    assert "gos user password" in page.text
    assert not has_session(browser)
    assert "gos user password" not in Browser(staff).sign_in(login, "a wrong guess at it", "acme").text.split("<form")[0]


def test_a_pending_choice_ends_when_the_password_is_set_meanwhile(browser: Browser, login: str) -> None:
    browser.sign_in(login, TEMPORARY, "acme")
    people.set_password(login, "set by an administrator since")
    choose(browser)
    assert urlsplit(browser.url).path == "/sign-in"
    assert not has_session(browser)
    assert people.check_password(login, "set by an administrator since").login == login


def test_the_second_factor_comes_after_it_and_not_instead(staff: Running, browser: Browser) -> None:
    login = f"careful{next(_numbers)}@acme.test"
    staff.user(login, OWN, "acme", "viewer")
    holder = Holder(staff, login)
    browser.sign_in(login, OWN, "acme")
    holder.browser.sign_in(login, OWN, "acme")
    holder.add_app()
    people.set_password(login, TEMPORARY, expires_at=clock.now_ms() + DAY_MS)
    fresh = Browser(staff)
    fresh.sign_in(login, TEMPORARY, "acme")
    fresh.post(fresh.at("", "/sign-in/factor"), {"code": holder.code(1)})
    assert urlsplit(fresh.url).path == HERE
    assert not has_session(fresh)
    choose(fresh, "eight green bottles hum quietly")
    assert urlsplit(fresh.url).path == "/sign-in/factor"
    fresh.post(fresh.at("", "/sign-in/factor"), {"code": holder.code(1)})
    assert has_session(fresh)


def test_an_invitation_that_it_accepts_does_not_sign_in_either(staff: Running, browser: Browser, login: str) -> None:
    scope = staff.tenant("globex")
    _, token = invitations.invite(scope, staff.services.sealer, InvitationSpec(login, "viewer"))
    browser.post(browser.at("", "/invitation"), {"token": token, "password": TEMPORARY})
    assert urlsplit(browser.url).path == HERE
    assert not has_session(browser)
    choose(browser)
    assert browser.url == browser.at("globex", "/console/")
