"""Administrators issue, rotate and revoke SCIM tokens in the console, after a proof of who they are; nobody else sees them."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.monitor import AuditFilter, audit
from appliance.tenants import appliance_scope, people
from appliance.tenants.provisioning import ProviderToken, create_token, list_tokens
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.scim.provider import ADMINISTRATOR

PAGE, PASSWORD = "/console/appliance/scim", "correct horse battery"
TEXT = re.compile(r'data-testid="new-token" id="token">(gos_scim_\w+)<')
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def browser(live: Running) -> Browser:
    live.user(ADMINISTRATOR, PASSWORD, "acme", "viewer")
    browser = Browser(live)
    browser.sign_in(ADMINISTRATOR, PASSWORD, "acme")
    return browser


@pytest.fixture(autouse=True)
def no_tokens(live: Running) -> None:
    db.write(lambda: db.execute("DELETE FROM scim_token"))


def change(browser: Browser, path: str, form: dict[str, str | list[str]]) -> httpx.Response:
    """Submit a form after the last proof has become stale, and enter the password."""
    user = people.find_user(ADMINISTRATOR).id
    db.write(lambda: db.execute("UPDATE session SET proven_at = 0 WHERE user_id = ?", (user,)))
    before = list_tokens()
    browser.post(browser.at("acme", PAGE + path), form)
    assert (urlsplit(browser.url).path, list_tokens()) == ("/confirm", before), "nothing happens without a proof"
    token = parse_qs(urlsplit(browser.url).query)["request"][0]
    page = browser.post(browser.at("", "/confirm"), {"request": token, "password": PASSWORD}).text
    (action,) = re.findall(r'<form method="post" action="([^"]+)"', page)
    (form_id,) = re.findall(r'type="hidden" name="kept-form" value="([\w=-]+)"', page)
    return browser.post(browser.at("acme", action), {"kept-form": form_id})


def text_in(page: httpx.Response) -> str:
    assert page.status_code == 201, page.text
    match = TEXT.search(page.text)
    assert match is not None
    return match[1]


def use(live: Running, text: str) -> int:
    with live.client("localhost", {"Authorization": f"Bearer {text}"}) as client:
        return client.get("/scim/v2/Users").status_code


def token_ending(text: str) -> ProviderToken:
    (token,) = [each for each in list_tokens() if each.last4 == text[-4:]]
    return token


def test_a_token_is_issued_shown_once_rotated_and_revoked(live: Running, browser: Browser) -> None:
    issued = change(browser, "", {"provider": "corp", "days": "90"})
    first_text = text_in(issued)
    assert f"{live.config.base_url}/scim/v2" in issued.text
    first = token_ending(first_text)
    assert first.expires_at is not None
    assert abs(first.expires_at - clock.now_ms() - 90 * DAY_MS) < 60_000
    page = browser.get(browser.at("acme", PAGE)).text
    assert (first.id in page, first_text in page, "never" in page) == (True, False, True)
    assert use(live, first_text) == 200
    second_text = text_in(change(browser, f"/{first.id}/rotate", {"overlap": "3600"}))
    second = token_ending(second_text)
    assert (second.rotated_from, use(live, first_text), use(live, second_text)) == (first.id, 200, 200)
    page = browser.get(browser.at("acme", PAGE)).text
    assert re.findall(r'<td><span data-testid="state" data-state="(\w+)"', page) == ["active", "replaced"]
    assert (f"{first.id}/rotate" in page, f"{second.id}/rotate" in page) == (False, True), "only the newest is rotated"
    assert change(browser, f"/{second.id}/revoke", {}).status_code == 200
    assert (use(live, first_text), use(live, second_text)) == (200, 401)
    user = f"user:{people.find_user(ADMINISTRATOR).id}"
    trail = audit.list_entries(appliance_scope(), AuditFilter(text="scim_token."), PageRequest()).items
    assert [(each.action, each.actor, each.subject) for each in trail] == [
        ("scim_token.revoke", user, second.id), ("scim_token.rotate", user, first.id), ("scim_token.create", user, first.id),
    ]  # fmt: skip
    with live.api("acme") as api:
        (entry,) = api.get("/api/v1/logs/audit", params={"subject": second.id}).json()["data"]
    assert (entry["action"], entry["actor"]) == ("scim_token.revoke", user), "tenants of the provider see who did it"


def test_a_rotated_token_is_not_rotated_again(live: Running, browser: Browser) -> None:
    first = create_token(live.services.sealer, live.services.single_sign_on.find_provider("corp"))[0]
    second = token_ending(text_in(change(browser, f"/{first.id}/rotate", {"overlap": "86400"})))
    refused = change(browser, f"/{first.id}/rotate", {"overlap": "86400"})
    assert (refused.status_code, f"replaced by {second.id} already" in refused.text) == (409, True)
    assert [each.id for each in list_tokens()] == [second.id, first.id]


def test_what_a_form_refuses(live: Running, browser: Browser) -> None:
    for form, status, problem in (
        ({"provider": "plain", "days": "30"}, 422, "has no `scim: true`"), ({"provider": "nobody", "days": "30"}, 404, "nobody"),
        ({"provider": "corp", "days": "soon"}, 422, "must be from 1 to 3650"),
        ({"provider": "corp", "days": "4000"}, 422, "must be from 1 to 3650"),
    ):  # fmt: skip
        refused = change(browser, "", dict(form))
        assert (refused.status_code, problem in refused.text) == (status, True), form
    assert change(browser, "/sct_nobody/revoke", {}).status_code == 404
    token = create_token(live.services.sealer, live.services.single_sign_on.find_provider("corp"))[0]
    assert change(browser, f"/{token.id}/rotate", {"overlap": "7"}).status_code == 422
    assert list_tokens() == [token]


def test_providers_without_a_working_token_are_marked(live: Running, browser: Browser) -> None:
    page = browser.get(browser.at("acme", PAGE)).text
    assert page.count("None of its tokens works") == 2, "corp and trusted; plain does not use SCIM"
    provider = live.services.single_sign_on.find_provider("corp")
    create_token(live.services.sealer, provider, days=10)
    page = browser.get(browser.at("acme", PAGE)).text
    assert (page.count("None of its tokens works"), page.count("Its last token expires")) == (1, 1)
    db.write(lambda: db.execute("UPDATE scim_token SET provider = 'former'"))
    page = browser.get(browser.at("acme", PAGE)).text
    assert (page.count("None of its tokens works"), "not in the configuration" in page) == (2, True)
    former = list_tokens()[0]
    assert f"{former.id}/rotate" not in page
    assert change(browser, f"/{former.id}/revoke", {}).status_code == 200
    assert list_tokens()[0].revoked_at is not None


def test_only_administrators_see_and_change_them(live: Running) -> None:
    token = create_token(live.services.sealer, live.services.single_sign_on.find_provider("corp"))[0]
    browser = Browser(live)
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    assert browser.get(browser.at("acme", PAGE)).status_code == 403
    for path in ("", f"/{token.id}/rotate", f"/{token.id}/revoke"):
        assert browser.post(browser.at("acme", PAGE + path), {"provider": "corp", "overlap": "0"}).status_code == 403
    assert list_tokens() == [token]
