"""The page of domains: the checks of each domain, and who can change them."""

from collections.abc import Callable

import httpx
import pytest

from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.webapps.name_server import NameServer


@pytest.fixture
def shop(acme: httpx.Client) -> str:
    name = fresh("domains")
    acme.post("/api/v1/webapps", json={"id": name, "name": f"The <b>{name}</b>"}).raise_for_status()
    return name


def test_a_domain_is_claimed_checked_set_as_primary_and_released(
    owner: Browser, acme: httpx.Client, shop: str, name_server: NameServer
) -> None:
    at, host = owner.at("acme", f"/console/webapps/{shop}/domains"), f"{shop}.doctor.test"
    assert "No domains yet" in owner.get(at).text
    form = {"host": host.upper(), "method": "txt", "redirect_from": "www"}
    page = owner.post(at, form).text
    proof = acme.get(f"/api/v1/webapps/{shop}/domains/{host}").json()["data"]["records"][0]
    for text in ("waiting for DNS", proof["name"], proof["expected"][0], f"www.{host}"):
        assert text in page, text
    name_server.set(proof["name"], "TXT", '"<script>of another</script>"')
    page = owner.post(f"{at}/{host}/verify", {}).text
    assert "&lt;script&gt;of another" in page
    assert "has another TXT record" in page
    name_server.set(proof["name"], "TXT", f'"{proof["expected"][0]}"')
    page = owner.post(f"{at}/{host}/verify", {}).text
    assert "as soon as its DNS points here" in page
    assert "primary</span>" in owner.post(f"{at}/{host}/primary", {"primary": "true"}).text
    refused = owner.post(at, form)
    assert (refused.status_code, "already" in refused.text) == (409, True)
    refused = owner.post(at, {"host": "http://x.test/", "method": "txt", "redirect_from": ""})
    assert (refused.status_code, "without scheme" in refused.text) == (422, True)
    assert owner.post(at, {"host": "x.doctor.test", "method": "trust me", "redirect_from": ""}).status_code == 422
    assert "No domains yet" in owner.post(f"{at}/{host}/release", {}).text


def test_a_reader_sees_domains_and_cannot_change_them(signed_in: Callable[[str], Browser], acme: httpx.Client, shop: str) -> None:
    host = f"{shop}.doctor.test"
    acme.post(f"/api/v1/webapps/{shop}/domains", json={"host": host}).raise_for_status()
    viewer = signed_in("viewer@acme.test")
    at = viewer.at("acme", f"/console/webapps/{shop}/domains")
    page = viewer.get(at).text
    assert host in page
    assert '<form method="post" action="/console/webapps' not in page
    for what in ("", f"/{host}/verify", f"/{host}/primary", f"/{host}/release"):
        assert viewer.post(f"{at}{what}", {}).status_code == 403
    stranger = signed_in("owner@globex.test")
    assert stranger.get(stranger.at("globex", f"/console/webapps/{shop}/domains")).status_code == 404
    theirs = stranger.at("globex", f"/console/webapps/{shop}/domains/{host}/release")
    assert stranger.post(theirs, {}).status_code == 404
