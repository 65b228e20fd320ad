"""Integrations in the console: tested before they are saved, secrets never displayed, changed and deleted safely."""

import re
from collections.abc import Callable
from html import unescape

import httpx
import pytest

from appliance.core.errors import ConcurrencyLimited
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser

TOKEN = "canary-of-the-form"
NEW = "/console/integrations/-/new"


@pytest.fixture
def demo(running: Running) -> str:
    """The address of an external system that answers."""
    return f"http://127.0.0.1:{running.config.server.port}/demo"


def fields(demo: str, **more: str) -> dict[str, str]:
    return {"connector": "http", "name": "Orders", "slug": fresh("orders"), "in/base_url": demo, "in/check": "orders", **more}


def draft_of(page: str) -> str:
    return unescape(re.findall(r'name="draft" value="([^"]*)"', page)[0])


def settings(acme: httpx.Client, slug: str) -> dict[str, object]:
    stored: dict[str, object] = acme.get(f"/api/v1/integrations/{slug}").json()["data"]["settings"]
    return stored


@pytest.mark.parametrize("connector", ["http", "graphql"])
def test_optional_credentials_start_with_none(owner: Browser, connector: str) -> None:
    page = owner.get(owner.at("acme", f"{NEW}?connector={connector}")).text
    kind = page[page.index('name="in/auth/kind"') :]
    options = re.findall(r"<option[^>]*>[^<]*", kind[: kind.index("</select>")])
    assert options[0] == '<option value="&#34;none&#34;" selected>none'


def test_settings_are_tested_before_they_are_saved(owner: Browser, acme: httpx.Client, demo: str) -> None:
    catalogue = owner.get(owner.at("acme", "/console/integrations/catalogue?q=http")).text
    assert "/console/integrations/-/new?connector=http" in catalogue
    assert "Calls are limited to addresses below it." in owner.get(owner.at("acme", f"{NEW}?connector=http")).text
    sent = fields(demo, **{"in/auth/kind": '"bearer"', "in/auth/token": TOKEN})
    tested = owner.post(owner.at("acme", NEW), {**sent, "do": "test"})
    assert (tested.status_code, "These settings work." in tested.text) == (200, True)
    assert acme.get(f"/api/v1/integrations/{sent['slug']}").status_code == 404
    assert TOKEN not in tested.text
    saved = owner.post(owner.at("acme", NEW), {**sent, "in/auth/token": "", "draft": draft_of(tested.text), "do": "save"})
    assert owner.url.endswith(f"/console/integrations/{sent['slug']}")
    assert "The settings work." in saved.text
    assert TOKEN not in saved.text
    assert re.search(r"<dt>Base address</dt><dd>[^<]*/demo</dd>", saved.text), "a setting is labelled like its field"
    assert "<dt>base_url</dt>" not in saved.text
    auth = settings(acme, sent["slug"])["auth"]
    assert isinstance(auth, dict)
    assert (auth["kind"], auth["token"]["sealed"]) == ("bearer", True)


def test_failed_tests_are_explained(owner: Browser, acme: httpx.Client, demo: str) -> None:
    tested = owner.post(owner.at("acme", NEW), {**fields("http://127.0.0.1:9"), "do": "test"})
    assert "These settings do not work." in tested.text
    wrong = owner.post(owner.at("acme", NEW), {**fields("no address"), "do": "test"})
    assert wrong.status_code == 422
    assert re.search(r'id="in/base_url"[^>]*aria-invalid="true"', wrong.text)
    form = fields(demo, slug="Not A Slug")
    assert 'id="slug-error"' in owner.post(owner.at("acme", NEW), {**form, "do": "save"}).text
    assert acme.get("/api/v1/integrations/Not A Slug").status_code == 404


def test_only_settings_of_the_chosen_credentials_are_stored(owner: Browser, acme: httpx.Client, demo: str) -> None:
    leftover = {"in/auth/kind": '"bearer"', "in/auth/token": TOKEN, "in/auth/username": "ann", "in/auth/password": "pw"}
    sent = fields(demo, **leftover, **{"in/headers": "X-Shop: north\nAccept: application/json"})
    owner.post(owner.at("acme", NEW), {**sent, "do": "save"})
    stored = settings(acme, sent["slug"])
    assert isinstance(stored["auth"], dict)
    assert set(stored["auth"]) == {"kind", "token"}
    assert stored["headers"] == {"X-Shop": "north", "Accept": "application/json"}


def test_a_draft_opens_only_for_its_author(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client, demo: str
) -> None:
    sent = fields(demo, **{"in/auth/kind": '"bearer"', "in/auth/token": TOKEN})
    draft = draft_of(owner.post(owner.at("acme", NEW), {**sent, "do": "test"}).text)
    builder = signed_in("builder@acme.test")
    for stolen in (draft, "garbage"):
        refused = builder.post(builder.at("acme", NEW), {**sent, "in/auth/token": "", "draft": stolen, "do": "save"})
        assert (refused.status_code, "enter them again" in refused.text) == (422, True)
    assert acme.get(f"/api/v1/integrations/{sent['slug']}").status_code == 404


def test_changed_settings_keep_their_secrets_unless_the_address_changes(owner: Browser, acme: httpx.Client, demo: str) -> None:
    sent = fields(demo, **{"in/auth/kind": '"bearer"', "in/auth/token": TOKEN})
    owner.post(owner.at("acme", NEW), {**sent, "do": "save"})
    at = owner.at("acme", f"/console/integrations/{sent['slug']}/settings")
    page = owner.get(at).text
    assert "A value is saved" in page
    assert TOKEN not in page
    change = {"name": "Renamed", "version": "1", "in/base_url": demo, "in/auth/kind": '"bearer"', "do": "save"}
    assert "Renamed" in owner.post(at, change).text
    auth = settings(acme, sent["slug"])["auth"]
    assert isinstance(auth, dict)
    assert auth["token"]["sealed"] is True
    assert owner.post(at, change).status_code == 412
    elsewhere = {**change, "version": "2", "in/base_url": f"{demo}/x"}
    refused = owner.post(at, elsewhere)
    assert refused.status_code == 422
    assert re.search(r'id="in/auth/token"[^>]*aria-invalid="true"', refused.text)


def test_a_removed_secret_stays_removed_through_a_test(owner: Browser, acme: httpx.Client, demo: str) -> None:
    sent = fields(demo, **{"in/auth/kind": '"bearer"', "in/auth/token": TOKEN})
    owner.post(owner.at("acme", NEW), {**sent, "do": "save"})
    at = owner.at("acme", f"/console/integrations/{sent['slug']}/settings")
    ticked = 'name="forget:in/auth/token" value="true" checked'
    assert ticked not in owner.get(at).text
    change = {**sent, "in/auth/token": "", "version": "1", "forget:in/auth/token": "true", "do": "test"}
    page = owner.post(at, change).text
    assert (ticked in page, "The saved value is removed" in page, draft_of(page)) == (True, True, "")


def test_untested_settings_are_reported_as_stored(
    running: Running, owner: Browser, acme: httpx.Client, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConcurrencyLimited("too many calls wait already; try again in a moment")

    monkeypatch.setattr(running.services.governance.executor, "submit", refuse)
    sent = fields(demo)
    saved = owner.post(owner.at("acme", NEW), {**sent, "do": "save"})
    assert (saved.status_code, owner.url.endswith(f"/console/integrations/{sent['slug']}")) == (200, True)
    assert acme.get(f"/api/v1/integrations/{sent['slug']}").status_code == 200


def test_processes_and_alerts_that_use_an_integration_are_listed(owner: Browser, acme: httpx.Client, demo: str) -> None:
    sent, process = fields(demo), fresh("asks")
    owner.post(owner.at("acme", NEW), {**sent, "do": "save"})
    step = {"id": "ask", "integration": {"use": sent["slug"], "action": "get", "input": {"url": "orders"}}}
    draft = {"id": process, "name": f"The asking {process}", "steps": [step]}
    acme.post("/api/v1/processes", json=draft).raise_for_status()
    alert = {"name": f"Watches {process}", "condition": {"kind": "integration_failing", "integration": sent["slug"]}}
    alert_id = acme.post("/api/v1/logs/alerts", json=alert).raise_for_status().json()["data"]["id"]
    at = f"/console/integrations/{sent['slug']}"
    page = owner.get(owner.at("acme", f"{at}/settings")).text
    assert (f"The asking {process}" in page, f"/console/alerts/{alert_id}" in page) == (True, True)
    acme.post(f"/api/v1/processes/{process}/publish", json={}).raise_for_status()
    draft["steps"] = [{"id": "none", "rule": {"expression": "= 1"}}]
    acme.put(f"/api/v1/processes/{process}", json=draft).raise_for_status()
    assert f"The asking {process}" in owner.get(owner.at("acme", f"{at}/settings")).text, "its published version still uses it"
    owner.post(owner.at("acme", f"{at}/delete"), {})
    assert acme.get(f"/api/v1/integrations/{sent['slug']}").status_code == 404
    acme.delete(f"/api/v1/processes/{process}").raise_for_status()
    acme.delete(f"/api/v1/logs/alerts/{alert_id}").raise_for_status()


def test_a_reader_gets_no_forms_of_integrations(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client, demo: str
) -> None:
    sent = fields(demo)
    owner.post(owner.at("acme", NEW), {**sent, "do": "save"})
    viewer, stranger = signed_in("viewer@acme.test"), signed_in("owner@globex.test")
    at = f"/console/integrations/{sent['slug']}"
    page = viewer.get(viewer.at("acme", at)).text
    assert f"{at}/settings" not in page
    assert viewer.get(viewer.at("acme", f"{at}/settings")).status_code == 403
    assert viewer.post(viewer.at("acme", f"{at}/delete"), {}).status_code == 403
    assert viewer.post(viewer.at("acme", NEW), {**fields(demo), "do": "test"}).status_code == 403
    assert "/-/new" not in viewer.get(viewer.at("acme", "/console/integrations/catalogue")).text
    assert stranger.get(stranger.at("globex", f"{at}/settings")).status_code == 404
    assert stranger.post(stranger.at("globex", f"{at}/delete"), {}).status_code == 404
    assert acme.get(f"/api/v1/integrations/{sent['slug']}").status_code == 200
