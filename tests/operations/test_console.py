"""Administrators issue and revoke keys of the appliance in the console, and read its audit trail there; nobody else does."""

import io
import re
from html import unescape

import httpx
import pytest

from appliance.core.pages import PageRequest
from appliance.monitor import AuditFilter, audit
from appliance.monitor.signed_trails import read_public_keys, verify_file
from appliance.tenants import appliance_scope, people
from appliance.tenants.keys import keys
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.operations.conftest import ADMINISTRATOR, PASSWORD
from tests.operations.examples import refuse_records

KEYS, TRAIL = "/console/appliance/keys", "/console/appliance/audit"
KEY = re.compile(r'data-testid="new-key" id="key">(gos_live_\w+)<')


@pytest.fixture
def browser(live: Running) -> Browser:
    browser = Browser(live)
    browser.sign_in(ADMINISTRATOR, PASSWORD, "acme")
    return browser


def test_a_key_is_issued_shown_once_used_and_revoked(live: Running, browser: Browser) -> None:
    page = browser.get(browser.at("acme", KEYS))
    assert "appliance.tenants" in page.text
    refused = browser.post(browser.at("acme", KEYS), {"name": "by hand", "days": "30"})
    assert (refused.status_code, "elect at least one scope" in refused.text) == (422, True)
    form: dict[str, str | list[str]] = {"name": "by hand", "days": "30", "scopes": ["appliance.read"], "addresses": ""}
    issued = browser.post(browser.at("acme", KEYS), form)
    assert issued.status_code == 201
    match = KEY.search(issued.text)
    assert match is not None
    user_id = people.find_user(ADMINISTRATOR).id
    (entry, *_) = audit.list_entries(appliance_scope(), AuditFilter(action="key.issue"), PageRequest()).items
    assert entry.actor == f"user:{user_id}"
    with live.client(live.config.domains.base, {"X-API-Key": match[1]}) as client:
        assert client.get("/api/v1/appliance/tenants").status_code == 200
        listed = browser.get(browser.at("acme", KEYS)).text
        assert match[1] not in listed
        assert f"by {ADMINISTRATOR}" in unescape(listed)
        browser.post(browser.at("acme", f"{KEYS}/{entry.subject}/revoke"), {})
        assert client.get("/api/v1/appliance/tenants").status_code == 401


def test_the_trail_is_shown_verified_and_exported(live: Running, browser: Browser) -> None:
    page = browser.get(browser.at("acme", f"{TRAIL}?text=tenant.create"))
    assert "tenant.create" in page.text
    assert 'href="/console/appliance/audit?action=tenant.create"' in page.text
    verified = browser.post(browser.at("acme", f"{TRAIL}/verify"), {})
    assert "The chain is intact." in verified.text
    exported: httpx.Response = browser.get(browser.at("acme", f"{TRAIL}/export"))
    assert '"tenant_id": "@appliance"' in exported.text
    with live.client(live.config.domains.base) as client:
        keys_file = client.get("/audit-keys.pem")
        trusted = read_public_keys(keys_file.content)
    assert (keys_file.headers["content-type"], b"PRIVATE" in keys_file.content) == ("application/x-pem-file", False)
    assert verify_file(io.BytesIO(exported.content), trusted).is_signed
    filtered: httpx.Response = browser.get(browser.at("acme", f"{TRAIL}/export?action=tenant.create"))
    assert verify_file(io.BytesIO(filtered.content), trusted).is_signed
    assert not verify_file(io.BytesIO(filtered.content.replace(b"acme", b"evil", 1)), trusted).is_signed
    with live.client(f"acme.{live.config.domains.base}") as client:
        assert client.get("/audit-keys.pem").status_code == 404


def test_refused_records_are_shown_until_they_are_acknowledged(live: Running, browser: Browser) -> None:
    tenant = live.tenant("refused").tenant_id
    refuse_records(tenant)
    page = unescape(browser.get(browser.at("acme", TRAIL)).text)
    assert "attribute too long" in page
    assert f"gos audit export --tenant {tenant} --since " in page
    form: dict[str, str | list[str]] = {"trail": tenant, "destination": "otlp", "total": "2"}
    browser.post(browser.at("acme", f"{TRAIL}/acknowledge"), form)
    assert "attribute too long" not in browser.get(browser.at("acme", TRAIL)).text
    (entry, *_) = audit.list_entries(appliance_scope(), AuditFilter(action="audit.acknowledge"), PageRequest()).items
    assert (entry.subject, entry.actor) == (tenant, f"user:{people.find_user(ADMINISTRATOR).id}")
    again = browser.post(browser.at("acme", f"{TRAIL}/acknowledge"), form)
    assert (again.status_code, "is left to acknowledge" in again.text) == (404, True)


def test_nobody_else_sees_them(live: Running) -> None:
    live.user("owner@acme.test", PASSWORD, "acme")
    browser = Browser(live)
    browser.sign_in("owner@acme.test", PASSWORD, "acme")
    for path in (KEYS, TRAIL, f"{TRAIL}/export"):
        assert browser.get(browser.at("acme", path)).status_code == 403
    form: dict[str, str | list[str]] = {"name": "mine", "days": "30", "scopes": ["appliance.read"]}
    for path in (KEYS, f"{KEYS}/key_x/revoke", f"{TRAIL}/verify", f"{TRAIL}/acknowledge"):
        assert browser.post(browser.at("acme", path), form).status_code == 403
    assert "mine" not in [key.name for key in keys.list_keys(appliance_scope(), PageRequest(limit=500)).items]
