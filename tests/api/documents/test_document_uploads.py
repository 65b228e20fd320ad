"""Resumable uploads over HTTP: an interrupted upload continues after the last acknowledged byte."""

import hashlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.api.documents.test_documents import assert_refused, incoming
from tests.processes.world import wait_until

UPLOADS = "/api/v1/uploads"
DATA = os.urandom(200_000)


def open_upload(client: httpx.Client, **members: Any) -> str:
    answer = client.post(UPLOADS, json={"name": "a.bin", "size": len(DATA), **members})
    assert (answer.status_code, answer.headers["upload-offset"]) == (201, "0")
    return str(answer.headers["location"])


def send(client: httpx.Client, upload: str, offset: int | str, data: Any) -> httpx.Response:
    return client.patch(upload, content=data, headers={"Upload-Offset": str(offset)})


def test_an_upload_is_resumed(acme: httpx.Client) -> None:
    sha256 = hashlib.sha256(DATA).hexdigest()
    upload = open_upload(acme, sha256=sha256, folder="parts", metadata={"a": 1})
    first = send(acme, upload, 0, DATA[:50_000])
    assert (first.status_code, first.headers["upload-offset"], first.headers["upload-complete"]) == (200, "50000", "?0")
    for answer in (acme.head(upload), acme.get(upload)):
        assert (answer.status_code, answer.headers["upload-offset"], answer.headers["upload-length"]) == (200, "50000", "200000")
    assert acme.head(upload).content == b""
    done = send(acme, upload, 50_000, DATA[50_000:])
    assert done.headers["upload-complete"] == "?1"
    document = acme.get(f"/api/v1/documents/{done.json()['data']['document_id']}").json()["data"]
    assert (document["sha256"], document["folder"], document["metadata"]) == (sha256, "parts", {"a": 1})


def test_a_wrong_offset_is_refused_with_the_right_one(acme: httpx.Client) -> None:
    upload = open_upload(acme)
    for offset, status in ((5, 409), ("", 400), ("-1", 400), ("9" * 19, 400), ("1 2", 400), ("0x0", 400)):
        answer = send(acme, upload, offset, b"x")
        assert answer.status_code == status, offset
        if status == 409:
            assert answer.headers["upload-offset"] == "0"
    assert acme.patch(upload, content=b"x").status_code == 400
    assert acme.head(upload).headers["upload-offset"] == "0"


def test_more_bytes_than_announced_are_refused(acme: httpx.Client) -> None:
    upload = open_upload(acme, size=10)
    assert_refused(send(acme, upload, 0, b"12345678901"), 413, "payload_too_large")
    assert send(acme, upload, int(acme.head(upload).headers["upload-offset"]), b"").status_code == 200


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": "a/b"}, "/name"),
        ({"folder": "../a"}, "/folder"),
        ({"metadata": {"": 1}}, "/metadata/"),
        ({"document_id": "doc_1"}, "/name"),
        ({"name": None, "document_id": "doc_1", "tags": []}, "/tags"),
        ({"comment": "what for"}, "/comment"),
        ({"sha256": "abc"}, "/sha256"),
        ({"size": -1}, "/size"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_an_invalid_upload_is_refused_before_any_byte(acme: httpx.Client, changes: dict[str, Any], pointer: str) -> None:
    assert_refused(acme.post(UPLOADS, json={"name": "a.bin", "size": 1, **changes}), 422, "validation_failed", pointer)


def test_an_upload_above_the_document_limit_is_refused_at_once(running: Running, acme: httpx.Client) -> None:
    most = running.config.limits.document_mb << 20
    assert most > running.config.limits.upload_mb << 20
    assert_refused(acme.post(UPLOADS, json={"name": "a.bin", "size": most + 1}), 413, "payload_too_large")


def test_a_broken_connection_loses_only_bytes_in_transit(running: Running, acme: httpx.Client) -> None:
    upload = open_upload(acme)
    with socket.create_connection(("127.0.0.1", running.config.server.port), 20) as client:
        head = f"PATCH {upload} HTTP/1.1\r\nHost: acme.localhost{running.config.port_suffix}\r\nUpload-Offset: 0\r\n"
        head += f"X-API-Key: {acme.headers['x-api-key']}\r\nContent-Length: {len(DATA)}\r\n\r\n"
        client.sendall(head.encode() + DATA[:120_000])
        wait_until(lambda: sum(path.stat().st_size for path in incoming(running)), 30)
    wait_until(lambda: acme.head(upload).headers["upload-offset"] != "0", 30)
    offset = int(acme.head(upload).headers["upload-offset"])
    assert 0 < offset <= 120_000
    done = send(acme, upload, offset, DATA[offset:]).json()["data"]
    assert acme.get(f"/api/v1/documents/{done['document_id']}/content").content == DATA


def test_an_upload_may_be_larger_than_a_body(running: Running, acme: httpx.Client) -> None:
    """One request of 105 MiB, where a plain upload takes 100; it is durable every 32."""
    size = (running.config.limits.upload_mb + 5) << 20

    def pieces() -> Iterator[bytes]:
        for number in range(size >> 20):
            yield bytes([number]) * (1 << 20)

    digest = hashlib.sha256()
    for piece in pieces():
        digest.update(piece)
    upload = open_upload(acme, size=size, sha256=digest.hexdigest())
    done = send(acme, upload, 0, pieces()).json()["data"]
    assert (done["state"], done["offset"]) == ("done", size)


def test_metadata_of_an_upload_filters_a_list(acme: httpx.Client) -> None:
    upload = acme.post(
        "/api/v1/documents", params={"name": "m.txt", "metadata": '{"order": 10248, "kind": "invoice"}'}, content=b"x"
    ).json()["data"]
    assert upload["metadata"] == {"kind": "invoice", "order": 10248}
    listed = acme.get("/api/v1/documents", params={"metadata": '{"order": 10248}'}).json()["data"]
    assert [each["id"] for each in listed] == [upload["id"]]
    assert_refused(acme.get("/api/v1/documents", params={"metadata": '{"order": [1]}'}), 400, "invalid_filter")
    assert_refused(acme.get("/api/v1/documents", params={"metadata": "order=1"}), 422, "validation_failed", "/metadata")
    changed = acme.patch(f"/api/v1/documents/{upload['id']}", json={"metadata": {"kind": None, "paid": True}}).json()["data"]
    assert changed["metadata"] == {"order": 10248, "paid": True}
