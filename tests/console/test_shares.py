"""Shares on the page of a document, the log of downloads, and legal holds."""

import html
import re

import httpx
import pytest

from appliance.core import clock
from appliance.documents.sharing import AudienceChange, NewShare, Origin
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.test_documents import SignedIn, upload

HOSTILE = "<script>alert(1)</script> & 'x'"
DAY = 86_400_000
FORM = {"days": "7", "revision": "latest", "password": "", "max_downloads": "", "note": ""}


@pytest.fixture
def document(acme: httpx.Client) -> str:
    return upload(acme, "contract.txt", b"between two")


def page_of(browser: Browser, document: str, more: str = "") -> str:
    return browser.at("acme", f"/console/documents/{document}{more}")


def test_a_share_is_created_shown_once_counted_and_revoked(
    running: Running, signed_in: SignedIn, acme: httpx.Client, document: str
) -> None:
    builder = signed_in("builder@acme.test")
    at = page_of(builder, document)
    created = builder.post(f"{at}/shares", {**FORM, "password": "a sentence", "max_downloads": "2", "note": HOSTILE})
    assert created.status_code == 201
    link = re.search(r'id="made-url">http://(cdn--acme[^:/<]+)[^/<]*(/s/[^<]+)<', created.text)
    assert link is not None
    (share,) = acme.get(f"/api/v1/documents/{document}/shares").json()["data"]
    assert (share["has_password"], share["max_downloads"], share["revision"], share["note"]) == (True, 2, "latest", HOSTILE)
    assert abs(clock.parse_rfc3339(share["expires_at"]) - clock.parse_rfc3339(share["created_at"]) - 7 * DAY) < 60_000
    token = link[2].removeprefix("/s/")
    with running.client(link[1]) as visitor:
        assert visitor.post(link[2], data={"password": "another one"}).status_code == 403
    page = builder.get(at).text
    assert token not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    for text in ("wrong password</span>", "0 of 2 downloads", "latest revision, with a password"):
        assert text in page, text
    assert "wrong password</span>" in builder.get(f"{at}/downloads").text
    export = builder.get(f"{at}/downloads/export")
    assert export.headers["content-disposition"].startswith("attachment;")
    assert ",wrong_password" in export.text
    assert builder.post(f"{at}/shares/{share['id']}/revoke", {}).status_code == 200
    assert acme.get(f"/api/v1/documents/{document}/shares/{share['id']}").json()["data"]["state"] == "revoked"
    assert "Revoke share" not in builder.get(at).text


def test_recipients_and_downloads_of_a_share_are_listed(
    running: Running, signed_in: SignedIn, acme: httpx.Client, document: str
) -> None:
    shares, scope = running.services.documents.shares, running.tenant("acme")
    recipients = [f"{name}@firma.example" for name in ("ann", "bob", "cid", "dan")]
    _, token = shares.create_share(scope, document, NewShare(audience=AudienceChange("post", recipients)))
    share = shares.open_share(scope, token)
    assert share is not None
    assert shares.start_download(scope, share, Origin("", "Firefox", recipients[3])) is not None
    viewer = signed_in("viewer@acme.test")
    assert "for ann@firma.example, bob@firma.example, cid@firma.example and 1 more" in viewer.get(page_of(viewer, document)).text
    assert "by dan@firma.example" in viewer.get(page_of(viewer, document, "/downloads")).text


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("days", "9", "Choose when the link expires."),
        ("revision", "7", "The document has no revision 7; it has 1."),
        ("password", "short", "A password has 8 to 200 characters."),
        ("max_downloads", "1.5", "Enter a whole number, or leave the field empty."),
    ],
)
def test_an_error_in_a_share_appears_at_its_field(
    signed_in: SignedIn, acme: httpx.Client, document: str, field: str, value: str, message: str
) -> None:
    builder = signed_in("builder@acme.test")
    answer = builder.post(page_of(builder, document, "/shares"), {**FORM, "note": "kept", field: value})
    assert answer.status_code == 422
    (at_field,) = re.findall(rf'<(?:input|select) id="([a-z-]+)" name="{field}"[^>]* aria-invalid="true" autofocus', answer.text)
    assert f'<p class="wrong" id="{at_field}-error">{message}</p>' in answer.text
    assert re.search(r'<input id="share-note" name="note" value="kept"', answer.text)
    assert 'value="short"' not in answer.text
    assert acme.get(f"/api/v1/documents/{document}/shares").json()["data"] == []


def test_a_legal_hold_is_set_and_released(signed_in: SignedIn, acme: httpx.Client, document: str) -> None:
    builder = signed_in("builder@acme.test")
    at, api = page_of(builder, document), f"/api/v1/documents/{document}/retention"
    last = clock.rfc3339(clock.now_ms() + 400 * DAY)[:10]
    page = builder.post(f"{at}/retention", {"until": last}).text
    assert acme.get(api).json()["data"]["retain_until"] == f"{last}T23:59:59.000Z"
    assert f"<dt>Retained until</dt><dd>{last}</dd>" in page
    for until in ("2020-01-01", "", "tomorrow"):
        assert builder.post(f"{at}/retention", {"until": until}).status_code == 422
    page = builder.post(f"{at}/legal-hold", {"reason": HOSTILE}).text
    assert acme.get(api).json()["data"]["legal_hold"]["reason"] == HOSTILE
    assert html.escape(HOSTILE, quote=False).replace("'", "&#39;") in page
    refused = builder.post(f"{at}/legal-hold", {"reason": " "})
    assert (refused.status_code, "Enter a reason of at most 1000 characters.</p>" in refused.text) == (422, True)
    assert acme.delete(f"/api/v1/documents/{document}").json()["error"]["code"] == "document_kept"
    assert "legal hold</span>" not in builder.post(f"{at}/legal-hold/release", {}).text
    assert builder.post(f"{at}/legal-hold/release", {}).status_code == 404
    builder.post(f"{at}/retention/end", {})
    assert acme.get(api).json()["data"] == {"document_id": document}


def test_a_reader_sees_shares_and_cannot_change_them(signed_in: SignedIn, acme: httpx.Client, document: str) -> None:
    share = acme.post(f"/api/v1/documents/{document}/shares", json={"note": "for Ada"}).json()["data"]["id"]
    acme.put(f"/api/v1/documents/{document}/legal-hold", json={"reason": "case 17"}).raise_for_status()
    operator, stranger = signed_in("operator@acme.test"), signed_in("owner@globex.test")
    page = operator.get(page_of(operator, document)).text
    assert "for Ada" in page
    assert "case 17" in page
    assert "<form" not in page.partition('id="shares-title"')[2].partition("</section>")[0]
    assert "<form" not in page.partition('id="keeping-title"')[2].partition("</section>")[0]
    actions = ("shares", f"shares/{share}/revoke", "retention", "retention/end", "legal-hold", "legal-hold/release")
    for action in actions:
        assert operator.post(page_of(operator, document, f"/{action}"), {**FORM, "until": "2999-01-01"}).status_code == 403
        theirs = stranger.at("globex", f"/console/documents/{document}/{action}")
        assert stranger.post(theirs, {**FORM, "until": "2029-01-01", "reason": "x"}).status_code == 404, action
    for path in ("downloads", "downloads/export"):
        assert stranger.get(stranger.at("globex", f"/console/documents/{document}/{path}")).status_code == 404
    retention = acme.get(f"/api/v1/documents/{document}/retention").json()["data"]
    assert (retention["legal_hold"]["reason"], "retain_until" in retention) == ("case 17", False)
    assert acme.get(f"/api/v1/documents/{document}/shares/{share}").json()["data"]["state"] == "active"
