"""Administrators rotate and retire the master key in the console, after they have proven who they are; nobody else sees it."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.master_key import add_key, get_status, list_keys
from appliance.monitor import AuditFilter, audit
from appliance.tenants import appliance_scope, people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.operations.conftest import ADMINISTRATOR, PASSWORD
from tests.processes.world import wait_until

PAGE = "/console/appliance/master-key"
RETIRE = 'data-testid="retire-master-keys"'


@pytest.fixture
def browser(live: Running) -> Browser:
    browser = Browser(live)
    browser.sign_in(ADMINISTRATOR, PASSWORD, "acme")
    return browser


def change(browser: Browser, what: str) -> httpx.Response:
    """Press the button after the last proof has become stale, and enter the password."""
    user = people.find_user(ADMINISTRATOR).id
    db.write(lambda: db.execute("UPDATE session SET proven_at = 0 WHERE user_id = ?", (user,)))
    browser.post(browser.at("acme", f"{PAGE}/{what}"), {})
    assert urlsplit(browser.url).path == "/confirm"
    token = parse_qs(urlsplit(browser.url).query)["request"][0]
    page = browser.post(browser.at("", "/confirm"), {"request": token, "password": PASSWORD}).text
    (action,) = re.findall(r'<form method="post" action="([^"]+)"', page)
    (form,) = re.findall(r'type="hidden" name="kept-form" value="([\w=-]+)"', page)
    return browser.post(browser.at("acme", action), {"kept-form": form})


def test_a_rotation_is_begun_followed_and_ended(live: Running, browser: Browser) -> None:
    first = list_keys()[-1]
    page = browser.get(browser.at("acme", PAGE)).text
    assert first.id in page
    assert RETIRE not in page
    if db.is_shared():
        refused = change(browser, "rotate")
        assert (refused.status_code, "gos master-key add" in refused.text) == (409, True)
        assert list_keys()[-1] == first
        add_key(live.config)
    assert change(browser, "rotate").status_code == 200
    second = list_keys()[-1]
    assert second.id != first.id
    assert second.id in browser.get(browser.at("acme", PAGE)).text
    refused = change(browser, "retire")
    assert (refused.status_code, "less than a minute ago" in refused.text) == (409, True)
    refused = browser.post(browser.at("acme", f"{PAGE}/retire"), {}, **{"Accept-Language": "de"})
    assert "vor weniger als einer Minute getauscht" in refused.text
    live.move_clock(75_000)
    wait_until(lambda: get_status(live.services.sealer).current == second.id, 30)
    wait_until(lambda: get_status(live.services.sealer).waiting == 0, 30)
    page = browser.get(browser.at("acme", PAGE)).text
    assert 'data-testid="all-sealed"' in page
    assert RETIRE in page
    done = change(browser, "retire")
    assert (done.status_code, RETIRE in done.text) == (200, False)
    assert [each.id for each in list_keys() if each.retired_at is None] == [second.id]
    trail = audit.list_entries(appliance_scope(), AuditFilter(text="master_key."), PageRequest()).items
    user = f"user:{people.find_user(ADMINISTRATOR).id}"
    assert [(each.action, each.actor) for each in trail] == [("master_key.retire", user), ("master_key.rotate", user)]


def test_only_administrators_see_and_change_it(live: Running) -> None:
    live.user("owner-of-acme@acme.test", PASSWORD, "acme", "owner")
    browser = Browser(live)
    browser.sign_in("owner-of-acme@acme.test", PASSWORD, "acme")
    before = list_keys()
    assert browser.get(browser.at("acme", PAGE)).status_code == 403
    for what in ("rotate", "retire"):
        assert browser.post(browser.at("acme", f"{PAGE}/{what}"), {}).status_code == 403
    assert list_keys() == before
