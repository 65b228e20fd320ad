"""Previews of documents over HTTP: cached by browsers only, revalidated by their ETag, refused with codes."""

import io

import httpx
from PIL import Image

from tests.api.documents.test_documents import DOCUMENTS, assert_refused, upload


def test_a_preview_is_cached_privately_by_its_reader(acme: httpx.Client, globex: httpx.Client) -> None:
    out = io.BytesIO()
    Image.new("RGB", (600, 300), "red").save(out, "PNG")
    document = upload(acme, out.getvalue(), "red.png")
    path = f"{DOCUMENTS}/{document['id']}/preview"
    answer = acme.get(path, params={"width": 160, "revision": 1})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
    assert Image.open(io.BytesIO(answer.content)).size == (160, 80)
    assert answer.headers["cache-control"] == "private, max-age=86400, immutable"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    headers = {"If-None-Match": answer.headers["etag"]}
    newest = acme.get(path, params={"width": 160}, headers=headers)
    assert (newest.status_code, newest.content, newest.headers["cache-control"]) == (304, b"", "private, no-cache")
    assert acme.get(path, params={"width": 160}, headers={"If-None-Match": '"other"'}).content == answer.content
    assert_refused(globex.get(path), 404, "not_found")
    for query, pointer in (({"width": 161}, "/width"), ({"page": 0}, "/page"), ({"revision": 0}, "/revision")):
        assert_refused(acme.get(path, params=query), 400, "invalid_request", pointer)
    assert_refused(acme.get(path, params={"page": 2}), 404, "not_found")


def test_markup_and_broken_content_are_not_painted(acme: httpx.Client) -> None:
    for name, data, status, code in (
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", 404, "not_found"),
        ("a.html", b"<html><script>alert(1)</script>", 404, "not_found"),
        ("a.png", b"\x89PNG\r\n\x1a\n and nothing else", 422, "preview_failed"),
    ):
        document = upload(acme, data, name)
        assert_refused(acme.get(f"{DOCUMENTS}/{document['id']}/preview"), status, code)
