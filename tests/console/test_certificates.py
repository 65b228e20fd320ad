"""Certificates on the page of an app's domains: uploaded, shown, refused at the field in error, and deleted."""

import re

import httpx
import pytest

from appliance.testing.running import Running
from appliance.webapps.certificates import subject_of
from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.console.test_documents import SignedIn
from tests.sites.signing import Authority, Leaf, pem_of, text_of

ROOT = Authority("Authority <b>of</b> the tests")


@pytest.fixture
def shop(running: Running, acme: httpx.Client) -> str:
    """A WebApp with a verified domain, to which www. redirects, and an unverified one."""
    name = fresh("certified")
    acme.post("/api/v1/webapps", json={"id": name}).raise_for_status()
    for host in (f"{name}.certified.test", f"{name}.claimed.test"):
        body = {"host": host, "method": "operator", "redirect_from": "www"}
        acme.post(f"/api/v1/webapps/{name}/domains", json=body).raise_for_status()
    running.appliance.services.webapps.domains.approve_domain(running.tenant("acme"), f"{name}.certified.test")
    return name


def at(browser: Browser, shop: str, more: str = "", tenant: str = "acme", domain: str = "certified") -> str:
    return browser.at(tenant, f"/console/webapps/{shop}/domains/{shop}.{domain}.test/certificate{more}")


def form_of(leaf: Leaf) -> dict[str, str | list[str]]:
    """The form as a browser submits text areas, with CRLF line endings."""
    certificate, key = text_of(ROOT.sign(leaf)), pem_of(leaf.key)
    return {"certificate": certificate.replace("\n", "\r\n"), "private_key": key.replace("\n", "\r\n"), "chain": ""}


def test_a_certificate_is_uploaded_shown_and_deleted(owner: Browser, acme: httpx.Client, shop: str) -> None:
    host = f"{shop}.certified.test"
    page = owner.get(owner.at("acme", f"/console/webapps/{shop}/domains")).text
    assert page.count("Upload your own certificate") == 1, "only the verified domain has one"
    sent = form_of(Leaf([host, f"www.{host}"]))
    page = owner.post(at(owner, shop), sent).text
    certificate = acme.get(f"/api/v1/webapps/{shop}/domains/{host}/certificate").json()["data"]
    facts = dict(re.findall(r"<dt>([A-Za-z0-9-]+)</dt><dd[^>]*>([^<]*)", page))
    assert (facts["For"].strip(), facts["Names"]) == (f"{host}, www.{host}", f"{host}, www.{host}")
    assert (facts["Issuer"], facts["Key"]) == ("Authority &lt;b&gt;of&lt;/b&gt; the tests", certificate["key"])
    assert facts["Valid"].startswith(f"{certificate['not_before'][:10]} to {certificate['not_after'][:10]}")
    assert (facts["Subject"], facts["SHA-256"]) == ("none", certificate["fingerprint_sha256"])
    assert "does not serve HTTPS itself" in page
    assert "PRIVATE KEY" not in page
    assert owner.post(at(owner, shop, "/delete"), {}).status_code == 200
    assert acme.get(f"/api/v1/webapps/{shop}/domains/{host}/certificate").status_code == 404
    assert owner.post(at(owner, shop, "/delete"), {}).status_code == 404


def test_a_subject_is_shown_as_it_is_written() -> None:
    assert subject_of(text_of(ROOT.certificate).encode()) == "CN=Authority \\<b\\>of\\</b\\> the tests"


def test_errors_appear_at_their_field(owner: Browser, acme: httpx.Client, shop: str) -> None:
    host = f"{shop}.certified.test"
    good, other = form_of(Leaf([host])), form_of(Leaf(["other.test"]))
    cases = {
        "private_key": ({**good, "private_key": other["private_key"]}, "The private key does not belong to the certificate"),
        "certificate": (other, f"The certificate does not cover {host}; it covers other.test"),
        "chain": ({**good, "chain": other["certificate"]}, "Each certificate must be followed by the one of its issuer"),
    }
    for field, (sent, message) in cases.items():
        refused = owner.post(at(owner, shop), sent)
        assert refused.status_code == 422
        (field_id,) = re.findall(rf'<textarea id="([a-z_0-9-]+)" name="{field}"[^>]* aria-invalid="true" autofocus', refused.text)
        assert re.search(rf'<p class="wrong" id="{field_id}-error">{re.escape(message)}', refused.text)
        assert refused.text.count('aria-invalid="true"') == 1
        assert "BEGIN CERTIFICATE" in refused.text
        assert "PRIVATE KEY" not in refused.text
    assert acme.get(f"/api/v1/webapps/{shop}/domains/{host}/certificate").status_code == 404
    refused = owner.post(at(owner, shop, domain="claimed"), good)
    assert (refused.status_code, "is not verified yet" in refused.text) == (409, True)


def test_an_upload_needs_the_permission_to_publish(signed_in: SignedIn, acme: httpx.Client, shop: str) -> None:
    host = f"{shop}.certified.test"
    operator, stranger = signed_in("operator@acme.test"), signed_in("owner@globex.test")
    assert "/certificate" not in operator.get(operator.at("acme", f"/console/webapps/{shop}/domains")).text
    sent = form_of(Leaf([host]))
    for more in ("", "/delete"):
        assert operator.post(at(operator, shop, more), sent).status_code == 403
        assert stranger.post(at(stranger, shop, more, "globex"), sent).status_code == 404
    assert acme.get(f"/api/v1/webapps/{shop}/domains/{host}/certificate").status_code == 404
