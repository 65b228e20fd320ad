"""Public documents on the CDN host: headers, caching, revisions, and no code that runs."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.tenants.keys import make_key_text
from appliance.testing.running import Running
from tests.sites.live_server import await_that

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + b"x" * 700_000
DOCUMENTS = "/api/v1/documents"


def upload(client: httpx.Client, name: str, data: bytes, **query: str) -> str:
    response = client.post(DOCUMENTS, params={"name": name, **query}, content=data).raise_for_status()
    return str(response.json()["data"]["id"])


def publish(client: httpx.Client, document: str, path: str, **more: Any) -> dict[str, Any]:
    answer = client.post(f"{DOCUMENTS}/{document}/publish", json={"path": path, **more}).raise_for_status()
    return dict(answer.json()["data"])


def wait_for_response(client: httpx.Client, path: str, expected: tuple[int, bytes]) -> None:
    """Return once the path answers as expected: a change may take its time, though not more than a second."""
    ends = time.monotonic() + 20
    while (answer := client.get(path)).status_code != expected[0] or answer.content != expected[1]:
        assert time.monotonic() < ends, (answer.status_code, answer.content[:100])


@pytest.fixture(scope="module")
def cdn(running: Running) -> Iterator[httpx.Client]:
    """Anybody, at the CDN host of tenant acme."""
    with running.client("cdn--acme.content.localhost") as client:
        client.headers["Accept-Encoding"] = "identity"
        yield client


def test_a_published_document_is_public(running: Running, acme: httpx.Client, cdn: httpx.Client) -> None:
    document = upload(acme, "Bericht Süd.pdf", PDF)
    publication = publish(acme, document, "/cdn-test/Bericht Süd.pdf", revision=1, cache="immutable")
    assert (publication["path"], publication["revision"], publication["serves"]) == ("cdn-test/Bericht Süd.pdf", 1, 1)
    assert publication["url"] == f"http://cdn--acme.content.localhost{running.config.port_suffix}/cdn-test/Bericht%20S%C3%BCd.pdf"
    assert acme.get(f"{DOCUMENTS}/{document}/publication").json()["data"] == publication
    answer = cdn.get("/cdn-test/Bericht%20S%C3%BCd.pdf")
    assert (answer.status_code, answer.content) == (200, PDF)
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.headers["content-disposition"] == (
        "inline; filename=\"Bericht S_d.pdf\"; filename*=UTF-8''Bericht%20S%C3%BCd.pdf"
    )
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "set-cookie" not in answer.headers
    part = cdn.get("/cdn-test/Bericht%20S%C3%BCd.pdf", headers={"Range": "bytes=9-12"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, PDF[9:13], f"bytes 9-12/{len(PDF)}")
    etag = answer.headers["etag"]
    assert cdn.get("/cdn-test/Bericht%20S%C3%BCd.pdf", headers={"If-None-Match": etag}).status_code == 304
    head = cdn.head("/cdn-test/Bericht%20S%C3%BCd.pdf")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(PDF)))


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [
        ("page.html", b"<!doctype html><script>alert(1)</script>", "text/html; charset=utf-8"),
        ("picture.svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml"),
        ("data.xml", b"<?xml version='1.0'?><a/>", "application/xml"),
        ("photo.png", b"<html><script>alert(1)</script>", "text/html; charset=utf-8"),
        ("list.csv", b"a,b\n", "text/csv; charset=utf-8"),
        ("code.js", b"alert(1)", "text/javascript; charset=utf-8"),
        ("blob.bin", b"\x00\x01", "application/octet-stream"),
    ],
)
def test_active_content_is_a_download(
    acme: httpx.Client, cdn: httpx.Client, name: str, data: bytes, media_type: str
) -> None:
    publish(acme, upload(acme, name, data), f"kept/{name}")
    headers = cdn.get(f"/kept/{name}").raise_for_status().headers
    assert headers["content-type"] == media_type
    assert headers["content-disposition"] == f'attachment; filename="{name}"'
    assert headers["content-security-policy"].startswith("default-src 'none'; sandbox;")
    assert headers["x-content-type-options"] == "nosniff"
    acme.delete(f"{DOCUMENTS}/{acme.get(DOCUMENTS, params={'name': name}).json()['data'][0]['id']}").raise_for_status()


def test_an_image_is_sandboxed_and_a_pdf_has_no_rights(acme: httpx.Client, cdn: httpx.Client) -> None:
    publish(acme, upload(acme, "shown.png", PNG), "shown.png", cache=60)
    headers = cdn.get("/shown.png").headers
    assert headers["content-disposition"].startswith("inline;")
    assert "; sandbox;" in headers["content-security-policy"]
    assert headers["cache-control"] == "public, max-age=60"
    publish(acme, upload(acme, "shown.txt", b"text <script>alert(1)</script>"), "shown.txt")
    headers = cdn.get("/shown.txt").headers
    assert (headers["content-type"], headers["cache-control"]) == (
        "text/plain; charset=utf-8", "public, max-age=0, must-revalidate",
    )  # fmt: skip


def test_a_new_revision_and_unpublishing_take_effect_at_once(acme: httpx.Client, cdn: httpx.Client) -> None:
    document = upload(acme, "news.txt", b"one")
    assert cdn.get("/news.txt").status_code == 404
    publish(acme, document, "news.txt")
    assert cdn.get("/news.txt").content == b"one"
    acme.post(f"{DOCUMENTS}/{document}/revisions", content=b"two").raise_for_status()
    wait_for_response(cdn, "/news.txt", (200, b"two"))
    publish(acme, document, "old.txt", revision=1)
    assert cdn.get("/old.txt").content == b"one"
    wait_for_response(cdn, "/news.txt", (404, b"not found"))
    acme.post(f"{DOCUMENTS}/{document}/unpublish").raise_for_status()
    acme.post(f"{DOCUMENTS}/{document}/unpublish").raise_for_status()
    wait_for_response(cdn, "/old.txt", (404, b"not found"))
    assert acme.get(f"{DOCUMENTS}/{document}/publication").status_code == 404


def test_counts_match_what_was_delivered(running: Running, acme: httpx.Client, cdn: httpx.Client) -> None:
    document = upload(acme, "counted.txt", b"0123456789")
    publish(acme, document, "counted.txt")

    def counted() -> tuple[int, int]:
        running.services.documents.publications.deliveries.flush()
        lines = acme.get(f"{DOCUMENTS}/{document}/downloads").raise_for_status().json()["data"]
        return sum(line["count"] for line in lines), sum(line["bytes"] for line in lines)

    etag = cdn.head("/counted.txt").headers["etag"]
    assert cdn.get("/counted.txt", headers={"If-None-Match": etag}).status_code == 304
    assert cdn.get("/counted.txt", headers={"Range": "bytes=20-"}).status_code == 416
    assert cdn.get("/counted.txt", headers={"Range": "bytes=5-"}).status_code == 206
    assert counted() == (0, 0)
    assert cdn.get("/counted.txt", headers={"Range": "bytes=0-4"}).status_code == 206
    assert cdn.get("/counted.txt").status_code == 200
    await_that(lambda: counted() == (2, 15))  # it is noted once it was sent


def test_the_host_serves_nothing_else(running: Running, acme: httpx.Client, cdn: httpx.Client) -> None:
    publish(acme, upload(acme, "mine.txt", b"mine"), "mine.txt")
    elsewhere = ("/", "/api/v1/tenant", "/console/", "/static/console.css", "/metrics", "/hooks/x", "/mcp")
    for path in (*elsewhere, "/mine.txt/", "//mine.txt"):
        assert (cdn.get(path).status_code, cdn.get(path).content) == (404, b"not found"), path
    assert cdn.post("/mine.txt", content=b"x").status_code == 405
    with running.client("cdn--globex.content.localhost") as other:
        assert other.get("/mine.txt").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"path": "../a"}, 422, "/path"),
        ({"path": ""}, 422, "/path"),
        ({"path": "a//b"}, 422, "/path"),
        ({"path": "s/abc"}, 422, "/path"),
        ({"path": "_gos/sign-in"}, 422, "/path"),
        ({"path": "a?b"}, 422, "/path"),
        ({"path": "a", "cache": "immutable"}, 422, "/cache"),
        ({"path": "a", "cache": "immutable", "revision": "latest_approved"}, 422, "/cache"),
        ({"path": "a", "revision": 2}, 422, "/revision"),
        ({"path": "a", "cache": "for ever"}, 422, None),
        ({"path": "cdn-taken.txt"}, 409, "/path"),
    ],
)
def test_publishing_errors_are_reported(acme: httpx.Client, body: dict[str, Any], status: int, pointer: str | None) -> None:
    other = upload(acme, "taken.txt", b"taken")
    publish(acme, other, "cdn-taken.txt")
    document = upload(acme, "mine.txt", b"mine")
    error = acme.post(f"{DOCUMENTS}/{document}/publish", json=body).json()["error"]
    acme.delete(f"{DOCUMENTS}/{other}").raise_for_status()
    assert error["status"] == status
    assert pointer is None or error["details"][0]["pointer"] == pointer


def test_an_api_key_is_never_delivered(acme: httpx.Client, cdn: httpx.Client) -> None:
    text = f"key = {make_key_text('live')}\n".encode()
    document = upload(acme, "keys.txt", text)
    refused = acme.post(f"{DOCUMENTS}/{document}/publish", json={"path": "keys.txt"}).json()["error"]
    assert (refused["status"], refused["code"]) == (422, "api_key_leaked")
    acme.post(f"{DOCUMENTS}/{document}/revisions", content=b"harmless").raise_for_status()
    assert publish(acme, document, "keys.txt")["serves"] == 2
    acme.post(f"{DOCUMENTS}/{document}/revisions", content=text).raise_for_status()
    wait_for_response(cdn, "/keys.txt", (404, b"not found"))
    assert "serves" not in acme.get(f"{DOCUMENTS}/{document}/publication").json()["data"]
