"""Whoever has forgotten a password gets a link by mail, which works once, for half an hour, and only to choose a new one."""

from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.core import clock
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import accounts, people
from appliance.tenants.models import Session
from appliance.testing.external_systems import Mailbox
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

NEW = "seven green bottles hum quietly"
SENT = 'data-testid="link-sent"'
_numbers = count(1)


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    yield box
    box.close()


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, mailbox: Mailbox) -> Iterator[Running]:
    mail = {"mail__server": f"smtp://127.0.0.1:{mailbox.port}", "mail__sender": "gos@example.org"}
    running = start_appliance(tmp_path_factory.mktemp("resets"), server__trusted_proxies=["127.0.0.1/32"], **mail)
    running.tenant("acme")
    yield running
    running.stop()


@pytest.fixture
def login(live: Running) -> str:
    """A new member with the usual password."""
    name = f"ann{next(_numbers)}@acme.test"
    live.user(name, PASSWORD, "acme", "viewer")
    return name


def request_link(browser: Browser, login: str, network: int = 0) -> httpx.Response:
    """Ask for a link from a network of its own, or the one with this number."""
    address = {"X-Forwarded-For": f"10.{network or next(_numbers)}.0.1"}
    return browser.post(browser.at("", "/password/forgotten"), {"login": login}, **address)


def link_for(browser: Browser, mailbox: Mailbox, login: str) -> str:
    """The link that is mailed."""
    assert SENT in request_link(browser, login).text
    _, link = mailbox.wait_for(login).links  # the first is that of the appliance
    return link


def replace(browser: Browser, link: str, password: str = NEW) -> str:
    """Open the link and choose a password; the page that follows."""
    assert browser.get(link).status_code == 200
    form = {"token": urlsplit(link).query.removeprefix("token="), "password": password}
    return browser.post(link.partition("?")[0], form).text


def can_sign_in(live: Running, login: str, password: str) -> bool:
    browser = Browser(live)
    browser.get(browser.at("acme", "/console/"))
    browser.post(browser.url, {"login": login, "password": password})
    return urlsplit(browser.url).path == "/console/"


def trail_of(login: str) -> list[str]:
    user = people.find_user(login).id
    entries = audit.list_entries(TenantScope("acme", "system"), audit.AuditFilter(subject=user), PageRequest(100)).items
    return [each.action for each in entries]


def test_a_link_replaces_the_password_once(live: Running, mailbox: Mailbox, login: str) -> None:
    elsewhere, browser = Browser(live), Browser(live)
    elsewhere.sign_in(login, PASSWORD, "acme")
    page = browser.get(browser.at("", "/sign-in")).text
    assert 'href="/password/forgotten"' in page
    link = link_for(browser, mailbox, login)
    assert "too easy to guess" not in replace(browser, link)
    assert can_sign_in(live, login, NEW)
    assert not can_sign_in(live, login, PASSWORD)
    elsewhere.get(elsewhere.at("acme", "/console/"))
    assert urlsplit(elsewhere.url).path == "/sign-in", "sessions of before end"
    again = browser.get(link)
    assert (again.status_code, "link-over" in again.text) == (410, True)
    token = urlsplit(link).query.removeprefix("token=")
    used = browser.post(browser.at("", "/password/new"), {"token": token, "password": "another password of nine words"})
    assert (used.status_code, can_sign_in(live, login, NEW)) == (410, True)
    assert trail_of(login)[:4].count("password.reset") == 1
    assert "password.request_reset" in trail_of(login)


def test_a_weak_password_leaves_the_link_usable(live: Running, mailbox: Mailbox, login: str) -> None:
    browser = Browser(live)
    link = link_for(browser, mailbox, login)
    for weak in ("short", "passwordpassword", f"{login}2026!"):
        assert 'data-testid="replace-password"' in replace(browser, link, weak)
    assert can_sign_in(live, login, PASSWORD)
    replace(browser, link)
    assert can_sign_in(live, login, NEW)


def test_a_newer_link_ends_the_older_one(live: Running, mailbox: Mailbox, login: str) -> None:
    browser = Browser(live)
    first = link_for(browser, mailbox, login)
    mailbox.letters.clear()
    second = link_for(browser, mailbox, login)
    assert [browser.get(link).status_code for link in (first, second)] == [410, 200]


def test_a_link_expires(live: Running, mailbox: Mailbox, login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(live)
    link = link_for(browser, mailbox, login)
    now = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + 31 * 60_000)
    assert browser.get(link).status_code == 410
    token = urlsplit(link).query.removeprefix("token=")
    assert browser.post(link.partition("?")[0], {"token": token, "password": NEW}).status_code == 410


def test_nobody_else_gets_mail_and_nobody_learns_of_it(live: Running, mailbox: Mailbox, login: str) -> None:
    """Unknown, disabled, without a password, no mail address: the page is the same, and nothing is sent or stored."""
    people.create_user("no-address", PASSWORD)
    expected_page = request_link(Browser(live), login).text
    mailbox.wait_for(login)
    accounts.disable_account(login)
    mailbox.letters.clear()
    resets = live.services.password_resets
    for other in ("nobody@acme.test", "no-address", login):
        assert request_link(Browser(live), other).text.replace(other, login) == expected_page
        resets.request(other, "192.0.2.9").result()
    assert mailbox.letters == []
    assert Session.select().where(Session.kind == "password-reset", Session.user_id == people.find_user(login).id).count() == 0


def test_requests_are_limited(live: Running, login: str) -> None:
    browser = Browser(live)
    answers = [request_link(browser, login, network=200) for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert "Retry-After" in answers[-1].headers


def test_a_server_that_refuses_is_logged_and_not_expected_page(live: Running, login: str, caplog: pytest.LogCaptureFixture) -> None:
    resets = live.services.password_resets
    settings = resets._mailer._settings
    object.__setattr__(settings, "server", "smtp://127.0.0.1:1")
    try:
        resets.request(login, "192.0.2.77").result()
    finally:
        object.__setattr__(settings, "server", live.config.mail.server)
    assert f"password of {login} could not be sent: smtp://127.0.0.1:1" in caplog.text


@pytest.fixture(scope="module")
def without_mail(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start_appliance(tmp_path_factory.mktemp("without-mail"))
    yield running
    running.stop()


def test_without_a_mail_server_there_are_no_links(without_mail: Running) -> None:
    browser = Browser(without_mail)
    assert "/password/forgotten" not in browser.get(browser.at("", "/sign-in")).text
    assert browser.get(browser.at("", "/password/forgotten")).status_code == 404
    assert browser.post(browser.at("", "/password/forgotten"), {"login": "owner@acme.test"}).status_code == 404
