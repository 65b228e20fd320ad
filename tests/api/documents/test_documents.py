"""Documents over HTTP: uploads, downloads, ranges, conditional requests, and hostile content."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.resources import Resources
from tests.processes.world import wait_until

DOCUMENTS = "/api/v1/documents"
DATA = bytes(range(256)) * 40


def upload(client: httpx.Client, content: Any = DATA, name: str = "data.bin", **query: str) -> dict[str, Any]:
    answer = client.post(DOCUMENTS, params={"name": name, **query}, content=content)
    assert answer.status_code == 201, answer.text
    data: dict[str, Any] = answer.json()["data"]
    assert answer.headers["location"] == f"{DOCUMENTS}/{data['id']}"
    assert answer.headers["etag"] == f'"{data["version"]}"'
    return data


def assert_refused(answer: httpx.Response, status: int, code: str, pointer: str | None = None) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), answer.text
    if pointer is not None:
        assert [detail["pointer"] for detail in error["details"]] == [pointer]
    return str(error["message"])


@pytest.fixture(scope="session")
def shared_document(acme: httpx.Client) -> dict[str, Any]:
    """A document that no test changes."""
    return upload(acme, name="Prüfung 100%.bin")


def content(client: httpx.Client, document: dict[str, Any], **headers: str) -> httpx.Response:
    return client.get(f"{DOCUMENTS}/{document['id']}/content", headers=headers)


def incoming(running: Running) -> list[Path]:
    return list((running.config.data / "blobs" / "incoming").iterdir())


def test_an_uploaded_document_is_downloaded_unchanged(
    acme: httpx.Client, shared_document: dict[str, Any], running: Running
) -> None:
    assert (shared_document["size"], shared_document["sha256"]) == (len(DATA), hashlib.sha256(DATA).hexdigest())
    answer = content(acme, shared_document)
    assert (answer.status_code, answer.content) == (200, DATA)
    headers = answer.headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-length"] == str(len(DATA))
    assert headers["etag"] == f'"{shared_document["sha256"]}"'
    disposition = "attachment; filename=\"Pr_fung 100_.bin\"; filename*=UTF-8''Pr%C3%BCfung%20100%25.bin"
    assert headers["content-disposition"] == disposition
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "private, no-cache"
    wait_until(lambda: not incoming(running), 30)


def test_a_head_request_returns_the_size_only(acme: httpx.Client, shared_document: dict[str, Any]) -> None:
    answer = acme.head(f"{DOCUMENTS}/{shared_document['id']}/content")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", str(len(DATA)))


@pytest.mark.parametrize(
    ("byte_range", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=10000-", 10000, 10240),
        ("bytes=-7", 10233, 10240),
        ("bytes=-99999", 0, 10240),
        ("bytes=5-99999", 5, 10240),
    ],
)
def test_a_range_is_returned(acme: httpx.Client, shared_document: dict[str, Any], byte_range: str, start: int, end: int) -> None:
    answer = content(acme, shared_document, Range=byte_range)
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/10240"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("byte_range", ["bytes=1-2,4-5", "lines=1-2", "bytes=5-1", "bytes=a-b", "bytes=-", "nonsense"])
def test_an_unsupported_range_gets_the_whole_file(acme: httpx.Client, shared_document: dict[str, Any], byte_range: str) -> None:
    answer = content(acme, shared_document, Range=byte_range)
    assert (answer.status_code, answer.content) == (200, DATA)


@pytest.mark.parametrize("byte_range", ["bytes=10240-", "bytes=99999-100000", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused_with_the_size(
    acme: httpx.Client, shared_document: dict[str, Any], byte_range: str
) -> None:
    answer = content(acme, shared_document, Range=byte_range)
    assert_refused(answer, 416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */10240"


def test_conditional_requests_are_honoured(acme: httpx.Client, shared_document: dict[str, Any]) -> None:
    whole = content(acme, shared_document)
    etag, modified = whole.headers["etag"], whole.headers["last-modified"]
    before = "Sat, 01 Jan 2000 00:00:00 GMT"
    for headers, status in (
        ({"If-None-Match": etag}, 304),
        ({"If-None-Match": f'"x", W/{etag}'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"x"'}, 200),
        ({"If-Modified-Since": modified}, 304),
        ({"If-Modified-Since": before}, 200),
        ({"If-None-Match": '"x"', "If-Modified-Since": modified}, 200),
        ({"If-Match": etag}, 200),
        ({"If-Match": f'"x", {etag}'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": '"x"'}, 412),
        ({"If-Unmodified-Since": before}, 412),
        ({"If-Unmodified-Since": modified}, 200),
        ({"If-Match": etag, "If-Unmodified-Since": before}, 200),
        ({"Range": "bytes=0-3", "If-Range": etag}, 206),
        ({"Range": "bytes=0-3", "If-Range": '"x"'}, 200),
        ({"Range": "bytes=0-3", "If-Range": f"W/{etag}"}, 200),
        ({"Range": "bytes=0-3", "If-Range": modified}, 206),
        ({"Range": "bytes=0-3", "If-Range": before}, 200),
        ({"Range": "bytes=0-3", "If-None-Match": etag}, 304),
        ({"Range": "bytes=99999-", "If-Match": '"x"'}, 412),
    ):
        answer = content(acme, shared_document, **headers)
        assert answer.status_code == status, headers
        if status == 304:
            assert (answer.content, answer.headers["etag"]) == (b"", etag)


def test_an_empty_file_is_a_document(acme: httpx.Client) -> None:
    document = upload(acme, b"", "empty.txt")
    answer = content(acme, document)
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")


def test_a_form_uploads_a_file_with_its_metadata(acme: httpx.Client, running: Running) -> None:
    files = {"file": ("..\\..\\Kündigung.csv", b"a,b\n1,2\n", "text/csv")}
    answer = acme.post(DOCUMENTS, files=files, data={"folder": "inbox/2026", "tags": "b, a"})
    document = answer.json()["data"]
    assert answer.status_code == 201
    assert (document["name"], document["folder"], document["tags"], document["media_type"]) == (
        "Kündigung.csv",
        "inbox/2026",
        ["a", "b"],
        "text/csv",
    )
    assert content(acme, document).content == b"a,b\n1,2\n"
    wait_until(lambda: not incoming(running), 30)


def test_a_large_form_is_stored_unchanged(acme: httpx.Client) -> None:
    data = os.urandom(3 << 20) + b"\r\n--not-the-boundary\r\n" + b"\n\r" * 1000
    document = acme.post(DOCUMENTS, files={"file": ("large.bin", data)}, data={"name": "other.bin"}).json()["data"]
    assert (document["name"], document["sha256"]) == ("other.bin", hashlib.sha256(data).hexdigest())


FORM = "multipart/form-data; boundary=cut"
PART = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nabc\r\n'


@pytest.mark.parametrize(
    ("media", "body", "status", "code"),
    [
        (FORM, b'{"name": "a.txt", "content": "abc"}', 400, "invalid_request"),
        (FORM, b"", 400, "invalid_request"),
        (FORM, PART, 400, "invalid_request"),
        (FORM, PART[:60], 400, "invalid_request"),
        (FORM, b"--cut\r\nContent-Type: text/plain\r\n\r\nabc\r\n--cut--\r\n", 400, "invalid_request"),
        (FORM, b"--cut--\r\n", 422, "validation_failed"),
        ("multipart/form-data", PART + b"--cut--\r\n", 400, "invalid_request"),
        ("multipart/mixed; boundary=cut", PART + b"--cut--\r\n", 400, "invalid_request"),
        (FORM, PART + PART + b"--cut--\r\n", 422, "validation_failed"),
        (FORM, PART.replace(b'"file"', b'"other"') + b"--cut--\r\n", 422, "validation_failed"),
        (FORM, PART.replace(b'"file"; filename="a.txt"', b'"name"') + b"--cut--\r\n", 422, "validation_failed"),
        (FORM, PART.replace(b'; filename="a.txt"', b"") + b"--cut--\r\n", 422, "validation_failed"),
        (FORM, PART + b'--cut\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--cut--\r\n', 422, "validation_failed"),
        (FORM, PART + b'--cut\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\r\n--cut--\r\n', 400, "invalid_request"),
        (FORM, PART + b'--cut\r\nContent-Disposition: form-data; name="name"\r\n\r\na\0b\r\n--cut--\r\n', 422, "validation_failed"),
        (FORM, PART * 101 + b"--cut--\r\n", 422, "validation_failed"),
        (FORM, b"--cut\r\n" + b"X: " + b"y" * (5 << 20), 413, "payload_too_large"),
        (
            FORM,
            PART + b'--cut\r\nContent-Disposition: form-data; name="folder"\r\n\r\n' + b"x" * 70_000 + b"\r\n--cut--\r\n",
            413,
            "payload_too_large",
        ),
    ],
)
def test_an_invalid_form_is_refused(
    acme: httpx.Client, running: Running, media: str, body: bytes, status: int, code: str
) -> None:
    assert_refused(acme.post(DOCUMENTS, content=body, headers={"Content-Type": media}), status, code)
    wait_until(lambda: not incoming(running), 30)


def test_a_json_body_is_a_file_and_needs_a_name(acme: httpx.Client) -> None:
    message = assert_refused(acme.post(DOCUMENTS, json={"name": "a.txt", "content": "abc"}), 422, "validation_failed", "/name")
    assert "?name=" in message
    document = acme.post(DOCUMENTS, params={"name": "a.json"}, json={"a": 1}).json()["data"]
    assert document["media_type"] == "application/json"


def test_duplicate_or_invalid_parameters_are_named(acme: httpx.Client) -> None:
    files = {"file": ("a.txt", b"abc")}
    twice = acme.post(DOCUMENTS, params={"folder": "a"}, files=files, data={"folder": "b"})
    assert_refused(twice, 422, "validation_failed", "/folder")
    assert_refused(acme.post(DOCUMENTS, params={"name": "a/b"}, content=b"x"), 422, "validation_failed", "/name")
    assert_refused(acme.post(DOCUMENTS, params={"name": "a", "folder": "../b"}, content=b"x"), 422, "validation_failed", "/folder")
    assert_refused(acme.post(DOCUMENTS, params={"name": "a", "colour": "red"}, content=b"x"), 400, "invalid_request")


@pytest.mark.parametrize("page", [b"<html><script>alert(1)</script>", b"<svg xmlns='x' onload='alert(1)'/>", b"%PDF-1.7\n<html>"])
def test_a_page_disguised_as_an_image_is_detected_and_sandboxed(acme: httpx.Client, page: bytes) -> None:
    document = acme.post(DOCUMENTS, files={"file": ("photo.png", page, "image/png")}).json()["data"]
    assert document["media_type"] in ("text/html", "image/svg+xml", "application/pdf")
    headers = content(acme, document).headers
    assert headers["content-disposition"].startswith("attachment;")
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["x-content-type-options"] == "nosniff"


def test_lists_are_filtered(acme: httpx.Client) -> None:
    first = upload(acme, b"%PDF-1.7", "list-1.pdf", folder="listed", tags="red,blue")
    second = upload(acme, b"GIF89a", "list-2.gif", folder="listed", tags="blue")

    def ids(**query: Any) -> list[str]:
        return [each["id"] for each in acme.get(DOCUMENTS, params={"folder": "listed", **query}).json()["data"]]

    assert ids() == [second["id"], first["id"]]
    assert ids(sort="name") == [first["id"], second["id"]]
    assert ids(tag="red") == ids(name="LIST-1") == ids(media_type="application/pdf") == [first["id"]]
    assert ids(tag="blue", media_type="image/*") == [second["id"]]
    page = acme.get(DOCUMENTS, params={"folder": "listed", "limit": 1, "count": "exact"}).json()["meta"]
    assert page["total"] == 2
    assert ids(limit=1, cursor=page["next_cursor"]) == [first["id"]]


def test_a_revision_is_added_and_the_old_one_stays(acme: httpx.Client) -> None:
    document = upload(acme, b"one", "a.txt")
    path = f"{DOCUMENTS}/{document['id']}"
    answer = acme.post(f"{path}/revisions", params={"comment": "better"}, content=b"two", headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["data"]["revision"]) == (201, 2)
    assert_refused(acme.post(f"{path}/revisions", content=b"three", headers={"If-Match": '"1"'}), 412, "version_conflict")
    listed = acme.get(f"{path}/revisions").json()["data"]
    assert [(each["number"], each["comment"], each["size"]) for each in listed] == [(2, "better", 3), (1, "", 3)]
    assert acme.get(f"{path}/content").content == b"two"
    assert acme.get(f"{path}/content", params={"revision": 1}).content == b"one"
    assert_refused(acme.get(f"{path}/content", params={"revision": 3}), 404, "not_found")


def test_a_change_can_require_a_version(acme: httpx.Client) -> None:
    document = upload(acme, b"one", "a.txt", folder="f", tags="x")
    path = f"{DOCUMENTS}/{document['id']}"
    changed = acme.patch(path, json={"name": "b.txt", "folder": "", "tags": []}, headers={"If-Match": '"1"'}).json()["data"]
    assert (changed["name"], changed["folder"], changed["tags"], changed["version"]) == ("b.txt", "", [], 2)
    assert_refused(acme.patch(path, json={"name": "c.txt"}, headers={"If-Match": '"1"'}), 412, "version_conflict")
    assert_refused(acme.patch(path, json={"media_type": "image/png"}), 422, "validation_failed", "/media_type")
    assert_refused(acme.delete(path, headers={"If-Match": '"1"'}), 412, "version_conflict")
    assert acme.delete(path).json()["data"] == {"deleted": document["id"]}
    assert_refused(acme.get(path), 404, "not_found")
    assert_refused(acme.get(f"{path}/content"), 404, "not_found")


def test_a_repeated_upload_creates_one_document(acme: httpx.Client) -> None:
    headers = {"Idempotency-Key": "upload-once"}
    first = acme.post(DOCUMENTS, params={"name": "once.txt"}, content=b"one", headers=headers)
    again = acme.post(DOCUMENTS, params={"name": "once.txt"}, content=b"one", headers=headers)
    assert first.json()["data"] == again.json()["data"]
    assert again.headers["idempotency-replayed"] == "true"
    other = acme.post(DOCUMENTS, params={"name": "once.txt"}, content=b"two", headers=headers)
    assert_refused(other, 422, "idempotency_mismatch")
    documents = acme.get(DOCUMENTS, params={"name": "once.txt"}).json()["data"]
    assert len(documents) == 1


def test_a_damaged_document_is_reported_and_not_delivered(acme: httpx.Client, running: Running) -> None:
    document = upload(acme, b"soon to be lost", "lost.txt")
    [stored] = (running.config.data / "blobs").rglob(f"{document['sha256']}.*")
    stored.unlink()
    message = assert_refused(content(acme, document), 500, "internal")
    assert "backup" in message
    upload(acme, b"soon to be lost", "again.txt")
    assert content(acme, document).content == b"soon to be lost"


@pytest.fixture(scope="module")
def small(running: Running) -> int:
    return running.config.limits.upload_mb << 20


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(running: Running, acme: httpx.Client, small: int) -> None:
    with socket.create_connection(("127.0.0.1", running.config.server.port), 10) as client:
        head = f"POST {DOCUMENTS}?name=a HTTP/1.1\r\nHost: acme.localhost{running.config.port_suffix}\r\n"
        head += f"X-API-Key: {acme.headers['x-api-key']}\r\nContent-Length: {small * 50}\r\n\r\n"
        client.sendall(head.encode() + b"x" * 1000)
        assert client.recv(1000).startswith(b"HTTP/1.1 413")


def test_an_upload_that_grows_too_large_leaves_nothing(running: Running, acme: httpx.Client, small: int) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range((small >> 20) + 1):
            yield bytes(1 << 20)

    assert_refused(acme.post(DOCUMENTS, params={"name": "a"}, content=endless()), 413, "payload_too_large")
    wait_until(lambda: not incoming(running), 30)


def test_a_broken_upload_leaves_nothing(running: Running, acme: httpx.Client) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(1 << 20)
        raise ConnectionResetError

    with pytest.raises((ConnectionResetError, httpx.TransportError)):
        acme.post(DOCUMENTS, params={"name": "broken"}, content=broken())
    wait_until(lambda: not incoming(running), 30)


def test_an_unauthenticated_upload_writes_nothing(running: Running) -> None:
    with running.client("acme.localhost") as stranger:
        assert_refused(stranger.post(DOCUMENTS, params={"name": "a"}, content=bytes(2 << 20)), 401, "missing_api_key")
    wait_until(lambda: not incoming(running), 30)


def test_a_document_of_another_tenant_is_not_found_by_its_id(
    acme: httpx.Client, globex: httpx.Client, shared_document: dict[str, Any]
) -> None:
    theirs = content(globex, shared_document)
    unknown = globex.get(f"{DOCUMENTS}/doc_0/content")
    assert theirs.status_code == unknown.status_code == 404
    assert (
        json.loads(theirs.text.replace(shared_document["id"], "ID"))["error"]["message"]
        == (json.loads(unknown.text.replace("doc_0", "ID"))["error"]["message"])
    )


def test_the_example_document_is_a_csv_file(ours: Resources) -> None:
    document = ours.ask("GET", f"/documents/{ours.document()}")
    assert (document["name"], document["media_type"]) == ("orders.csv", "text/csv")
