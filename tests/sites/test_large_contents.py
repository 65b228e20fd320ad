"""Large contents are streamed in both directions and never held in memory."""

import hashlib
import secrets
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from appliance.testing.running import Running
from tests.sites.test_webapps import new_app, site

MB = 1 << 20
SIZE, MOST_MEMORY = 32 * MB, 12 * MB  # the limit is for client and server together
PIECE = MB


class Content:
    """Yields the same random bytes each time, piece by piece; each instance has different bytes."""

    def __init__(self) -> None:
        self._piece = secrets.token_bytes(PIECE)
        digest = hashlib.sha256()
        for piece in self:
            digest.update(piece)
        self.sha256 = digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        return (self._piece for _ in range(SIZE // PIECE))


@pytest.fixture
def content() -> Content:
    return Content()


@contextmanager
def bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak / MB:.1f} MB were held at once"


SIZED = {"Content-Length": str(SIZE), "Content-Type": "application/octet-stream"}


def digest_of(client: httpx.Client, path: str) -> str:
    digest = hashlib.sha256()
    with client.stream("GET", path) as answer:
        answer.raise_for_status()
        for piece in answer.iter_raw(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def test_a_document_is_streamed_in_flat_memory(acme: httpx.Client, content: Content) -> None:
    with bounded_memory():
        sent = acme.post("/api/v1/documents?name=large.bin", content=content, headers=SIZED).raise_for_status()
        path = f"/api/v1/documents/{sent.json()['data']['id']}"
        assert digest_of(acme, f"{path}/content") == content.sha256
    acme.delete(path).raise_for_status()


def test_an_upload_part_is_streamed_in_flat_memory(acme: httpx.Client, content: Content) -> None:
    created = acme.post("/api/v1/uploads", json={"name": "large.bin", "size": SIZE, "sha256": content.sha256})
    headers = {"Upload-Offset": "0", "Content-Length": str(SIZE)}
    with bounded_memory():
        answer = acme.patch(created.raise_for_status().headers["location"], content=content, headers=headers).raise_for_status()
    assert answer.json()["data"]["state"] == "done"
    acme.delete(f"/api/v1/documents/{answer.json()['data']['document_id']}").raise_for_status()


def test_a_webapp_file_is_streamed_in_flat_memory(running: Running, acme: httpx.Client, content: Content) -> None:
    new_app(acme, "large-app")
    versions = "/api/v1/webapps/large-app/versions"
    manifest = {"files": {"large.bin": {"sha256": content.sha256, "size": SIZE}}}
    one = f"{versions}/{acme.post(versions, json=manifest).raise_for_status().json()['data']['version']}"
    with bounded_memory():
        acme.put(f"{one}/blobs/{content.sha256}", content=content, headers=SIZED).raise_for_status()
        acme.post(f"{one}/finalize", json={}).raise_for_status()
        acme.post(f"{one}/publish", json={}).raise_for_status()
        with site(running, "large-app--acme") as visitor:
            assert digest_of(visitor, "/large.bin") == content.sha256
    acme.post("/api/v1/webapps/large-app/unpublish", json={}).raise_for_status()
    acme.delete("/api/v1/webapps/large-app").raise_for_status()
