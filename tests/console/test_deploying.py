"""Files uploaded in the console: versions of WebApps from archives, documents and their revisions."""

from collections.abc import Callable

import httpx

from appliance.solutions import write_zip
from tests.api.resources import fresh
from tests.console.browser import Browser


def test_a_webapp_is_created_uploaded_compared_and_published(owner: Browser, acme: httpx.Client) -> None:
    app = fresh("app")[:24]
    assert 'id="id-error"' in owner.post(owner.at("acme", "/console/webapps"), {"id": "Not One", "name": ""}).text
    owner.post(owner.at("acme", "/console/webapps"), {"id": app, "name": "Shop"})
    at = owner.at("acme", f"/console/webapps/{app}")
    first = owner.upload(f"{at}/versions", ("site.zip", write_zip({"index.html": b"1", "old.css": b"o"})), {"message": "first"})
    assert (first.status_code, owner.url.endswith(f"/{app}/versions/1")) == (200, True)
    acme.post(f"/api/v1/webapps/{app}/versions/1/publish", json={}).raise_for_status()
    page = owner.upload(f"{at}/versions", ("site.zip", write_zip({"index.html": b"2", "new.js": b"n"})), {"message": "2nd"}).text
    for state, path in (("added", "new.js"), ("changed", "index.html"), ("removed", "old.css")):
        assert f'data-change="{state}">{path}<' in page
    assert "new.js" not in owner.get(f"{at}/versions/1").text
    assert owner.get(f"{at}/versions/9").status_code == 404


def test_an_invalid_archive_is_refused_and_the_message_stays(owner: Browser, acme: httpx.Client) -> None:
    app = fresh("app")[:24]
    acme.post("/api/v1/webapps", json={"id": app}).raise_for_status()
    at = owner.at("acme", f"/console/webapps/{app}/versions")
    refused = owner.upload(at, ("notes.txt", b"no archive"), {"message": "kept <words>"})
    assert 400 <= refused.status_code < 500
    assert "kept &lt;words&gt;" in refused.text
    assert acme.get(f"/api/v1/webapps/{app}/versions").json()["data"] == []


def test_documents_are_uploaded_changed_and_deleted(owner: Browser, acme: httpx.Client) -> None:
    folder = fresh("inbox")
    form = {"folder": folder, "tags": "current, customer"}
    assert "letter.txt" in owner.upload(owner.at("acme", "/console/documents/-/upload"), ("letter.txt", b"Dear Ann"), form).text
    document = acme.get("/api/v1/documents", params={"folder": folder}).json()["data"][0]
    assert (document["name"], document["tags"]) == ("letter.txt", ["current", "customer"])
    at = owner.at("acme", f"/console/documents/{document['id']}")
    owner.upload(f"{at}/revisions", ("other name.txt", b"Dear Ben"), {"comment": "to Ben"})
    owner.post(f"{at}/change", {"name": "to Ben.txt", "folder": folder, "tags": ""})
    now = acme.get(f"/api/v1/documents/{document['id']}").json()["data"]
    assert (now["name"], now["revision"], now["tags"]) == ("to Ben.txt", 2, [])
    kinds = owner.get(owner.at("acme", f"/console/documents?folder={folder}&kind=application/pdf")).text
    assert "Nothing matches your search." in kinds
    owner.post(f"{at}/delete", {})
    assert acme.get(f"/api/v1/documents/{document['id']}").status_code == 404


def test_a_document_under_legal_hold_is_not_deleted(owner: Browser, acme: httpx.Client) -> None:
    uploaded = acme.post("/api/v1/documents?name=held.txt", content=b"x", headers={"Content-Type": "text/plain"})
    document = uploaded.json()["data"]["id"]
    at = owner.at("acme", f"/console/documents/{document}")
    owner.post(f"{at}/legal-hold", {"reason": "a law suit"})
    assert owner.post(f"{at}/delete", {}).status_code == 409
    assert acme.get(f"/api/v1/documents/{document}").status_code == 200
    owner.post(f"{at}/legal-hold/release", {})


def test_an_upload_without_a_file_says_what_to_do(owner: Browser) -> None:
    refused = owner.post(owner.at("acme", "/console/documents/-/upload"), {}, **{"Content-Type": "multipart/form-data; boundary=x"})
    assert refused.status_code in (400, 422)


def test_a_reader_cannot_upload_or_delete(signed_in: Callable[[str], Browser], acme: httpx.Client) -> None:
    viewer, stranger = signed_in("viewer@acme.test"), signed_in("owner@globex.test")
    uploaded = acme.post("/api/v1/documents?name=kept.txt", content=b"x", headers={"Content-Type": "text/plain"})
    document = uploaded.json()["data"]["id"]
    page = viewer.get(viewer.at("acme", f"/console/documents/{document}")).text
    assert not any(name in page for name in ("delete-document", "add-revision", "change-document"))
    assert viewer.upload(viewer.at("acme", "/console/documents/-/upload"), ("a.txt", b"a")).status_code == 403
    assert viewer.post(viewer.at("acme", f"/console/documents/{document}/delete"), {}).status_code == 403
    assert viewer.post(viewer.at("acme", "/console/webapps"), {"id": "x"}).status_code == 403
    assert stranger.post(stranger.at("globex", f"/console/documents/{document}/delete"), {}).status_code == 404
    assert acme.get(f"/api/v1/documents/{document}").status_code == 200
