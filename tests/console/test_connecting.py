"""Connecting an integration by OAuth in a browser: to a strict provider and back, and every case that must not connect."""

from collections.abc import Callable, Iterator
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.integrations.provider import Provider

SLUG = "consented"


@pytest.fixture
def provider(acme: httpx.Client) -> Iterator[Provider]:
    """The provider of an integration that is not connected yet."""
    provider = Provider()
    acme.post("/api/v1/integrations", json={"slug": SLUG, "connector": "http", "settings": provider.settings()}).raise_for_status()
    yield provider
    acme.delete(f"/api/v1/integrations/{SLUG}").raise_for_status()
    provider.close()


def start_connection(browser: Browser) -> str:
    """Press Connect; returns the address at the provider."""
    page = browser.post(browser.at("acme", f"/console/integrations/{SLUG}/connect"), {})
    assert page.status_code == 200, page.text
    return unescape(page.text.split('rel="noreferrer"')[0].rsplit('href="', 1)[1].split('"')[0])


def connection_state(acme: httpx.Client) -> str:
    return str(acme.get(f"/api/v1/integrations/{SLUG}").json()["data"]["connection"]["state"])


def can_call(acme: httpx.Client) -> bool:
    return acme.post(f"/api/v1/integrations/{SLUG}/execute", json={"action": "get", "input": {"url": "me"}}).status_code == 200


def test_a_connected_integration_can_be_called(owner: Browser, acme: httpx.Client, provider: Provider) -> None:
    address = owner.at("acme", f"/console/integrations/{SLUG}")
    page = owner.get(address).text
    assert "Not connected yet." in page
    assert "/console/oauth/callback" in page
    assert not can_call(acme)
    back = provider.allow(start_connection(owner))
    assert urlsplit(back).netloc == urlsplit(owner.at("acme", "/")).netloc
    done = owner.get(back)
    assert urlsplit(owner.url).path == f"/console/integrations/{SLUG}"
    assert "Connected." in done.text
    assert "canary" not in done.text
    assert (connection_state(acme), can_call(acme), provider.grants) == ("connected", True, ["authorization_code"])
    assert "integration.connect" in acme.get("/api/v1/logs/audit?action=integration.connect").text
    again = owner.get(back)
    assert again.status_code == 409
    assert "connect the integration again" in again.text
    disconnected = owner.post(owner.at("acme", f"/console/integrations/{SLUG}/disconnect"), {})
    assert "Not connected yet." in disconnected.text
    assert not can_call(acme)


def test_a_state_belongs_to_one_browser(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client, provider: Provider
) -> None:
    back = provider.allow(start_connection(owner))
    assert signed_in("builder@acme.test").get(back).status_code == 409
    assert owner.get(back).status_code == 409  # used up by whoever came with it
    assert (connection_state(acme), provider.grants) == ("not_connected", [])


def test_connecting_needs_the_permission_to_change_integrations(
    owner: Browser, signed_in: Callable[[str], Browser], acme: httpx.Client, provider: Provider
) -> None:
    viewer, stranger = signed_in("viewer@acme.test"), signed_in("owner@globex.test")
    assert viewer.post(viewer.at("acme", f"/console/integrations/{SLUG}/connect"), {}).status_code == 403
    assert "Not connected yet." in viewer.get(viewer.at("acme", f"/console/integrations/{SLUG}")).text
    back = provider.allow(start_connection(owner))
    assert viewer.get(back).status_code == 403
    elsewhere = back.replace("//acme.", "//globex.")
    assert stranger.get(elsewhere).status_code == 409
    assert stranger.post(stranger.at("globex", f"/console/integrations/{SLUG}/connect"), {}).status_code == 404
    assert (connection_state(acme), provider.grants) == ("not_connected", [])


@pytest.mark.parametrize("query", ["", "state=&code=x", "state=made-up&code=x", "error=access_denied&state=%00"])
def test_a_forged_answer_connects_nothing(owner: Browser, acme: httpx.Client, provider: Provider, query: str) -> None:
    start_connection(owner)
    assert owner.get(owner.at("acme", f"/console/oauth/callback?{query}")).status_code == 409
    assert (connection_state(acme), provider.grants) == ("not_connected", [])


def test_a_refusal_of_the_provider_is_reported(owner: Browser, acme: httpx.Client, provider: Provider) -> None:
    state_parameter = parse_qs(urlsplit(start_connection(owner)).query)["state"][0]
    page = owner.get(owner.at("acme", f"/console/oauth/callback?state={state_parameter}&error=access_denied<b>"))
    assert page.status_code == 409
    assert "access_deniedb" in page.text
    stolen = provider.allow(start_connection(owner)).replace("code-1", "code-2")
    page = owner.get(stolen)
    assert page.status_code == 502
    assert "connect again" in page.text
    assert (connection_state(acme), provider.grants) == ("not_connected", ["authorization_code"])


def test_a_late_or_outdated_answer_connects_nothing(
    owner: Browser, acme: httpx.Client, provider: Provider
) -> None:
    back = provider.allow(start_connection(owner))
    db.write(lambda: db.execute("UPDATE integration_consent SET expires_at = ?", (clock.now_ms() - 1,)))
    assert owner.get(back).status_code == 409
    back = provider.allow(start_connection(owner))
    changes = {"settings": {"auth": {"scope": "everything"}}}
    acme.patch(f"/api/v1/integrations/{SLUG}", json=changes).raise_for_status()
    assert "have changed in the meantime" in owner.get(back).text
    assert provider.grants == []


def test_a_connection_started_by_a_program_is_confirmed_by_a_person(
    signed_in: Callable[[str], Browser], running: Running, acme: httpx.Client, provider: Provider
) -> None:
    authorization = acme.post(f"/api/v1/integrations/{SLUG}/oauth/start").json()["data"]
    assert authorization["redirect_uri"] == f"{running.config.tenant_url('acme')}/console/oauth/callback"
    builder = signed_in("builder@acme.test")
    back = provider.allow(authorization["url"])
    page = builder.get(back)
    assert page.status_code == 200
    assert "Confirm only if you started this yourself" in page.text
    assert (connection_state(acme), provider.grants) == ("not_connected", [])
    fields = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    foreign = builder.post(builder.at("acme", "/console/oauth/finish"), fields, **{"Sec-Fetch-Site": "cross-site"})
    assert foreign.status_code == 403
    assert "Connected." in builder.post(builder.at("acme", "/console/oauth/finish"), fields).text
    assert can_call(acme)
    assert acme.delete(f"/api/v1/integrations/{SLUG}/oauth").status_code == 200
    assert connection_state(acme) == "not_connected"


def test_client_credentials_need_no_connection(acme: httpx.Client, provider: Provider) -> None:
    settings = provider.settings(grant="client_credentials")
    acme.patch(f"/api/v1/integrations/{SLUG}", json={"settings": settings}).raise_for_status()
    refused = acme.post(f"/api/v1/integrations/{SLUG}/oauth/start")
    assert refused.status_code == 409
    assert "connection" not in acme.get(f"/api/v1/integrations/{SLUG}").json()["data"]
