"""Downloads from the bucket itself: after all checks of the appliance, and only where they are allowed and fit."""

import logging
import os
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.core.config.sections import Blobs as Settings
from appliance.testing.running import Running
from tests.console.browser import Browser

SMALL, LARGE = os.urandom((1 << 20) - 1), os.urandom(1 << 20)
NAME = "über 1.bin"


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], bucket: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An appliance that keeps contents in a bucket and lets clients download documents of 1 MB and more from it."""
    settings = {f"blobs__{name}": value for name, value in vars(bucket).items()} | {"blobs__prefix": "direct"}
    appliance = start_appliance(tmp_path_factory.mktemp("data"), **{**settings, "blobs__direct_from_mb": 1})
    appliance.user("ann@acme.test", "a long and quiet password", "acme")
    yield appliance
    appliance.stop()


@pytest.fixture(scope="module")
def acme(live: Running) -> Iterator[httpx.Client]:
    with live.api("acme") as client:
        yield client


def upload(client: httpx.Client, content: bytes) -> str:
    response = client.post("/api/v1/documents", params={"name": NAME}, content=content)
    response.raise_for_status()
    return f"/api/v1/documents/{response.json()['data']['id']}/content"


@pytest.fixture(scope="module")
def large(acme: httpx.Client) -> str:
    return upload(acme, LARGE)


def fetch(address: str, **headers: str) -> httpx.Response:
    return httpx.get(address, headers=headers, timeout=60, trust_env=False)


def test_a_large_document_comes_from_the_bucket_when_the_client_asks(acme: httpx.Client, large: str, bucket: Settings) -> None:
    answer = acme.get(large, params={"direct": "true"})
    assert (answer.status_code, answer.content) == (302, b"")
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert answer.headers["Location"].startswith(f"{bucket.endpoint}/contents/direct/acme/")
    assert acme.headers["X-API-Key"] not in str(answer.headers)
    content = fetch(answer.headers["Location"])
    assert (content.status_code, content.content) == (200, LARGE)
    streamed = acme.get(large)
    assert (streamed.status_code, streamed.content) == (200, LARGE)
    for name in ("Content-Type", "Content-Disposition"):
        assert content.headers[name] == streamed.headers[name]
    part = acme.get(large, params={"direct": "true"}, headers={"Range": "bytes=1000-1999"})
    assert part.status_code == 302
    assert fetch(part.headers["Location"], Range="bytes=1000-1999").content == LARGE[1000:2000]


def test_small_documents_and_conditional_requests_are_answered_by_the_appliance(acme: httpx.Client, large: str) -> None:
    small = acme.get(upload(acme, SMALL), params={"direct": "true"})
    assert (small.status_code, small.content) == (200, SMALL)
    etag = acme.get(large).headers["ETag"]
    expected = {
        ("If-None-Match", etag): 304, ("If-None-Match", '"other"'): 200, ("If-Match", etag): 200, ("If-Match", '"other"'): 412,
        ("If-Modified-Since", "Sun, 22 Nov 2020 00:00:00 GMT"): 200, ("If-Range", etag): 200,
        ("If-Unmodified-Since", "Sun, 22 Nov 2099 00:00:00 GMT"): 200,
    }  # fmt: skip
    answers = {each: acme.get(large, params={"direct": "true"}, headers=dict([each])).status_code for each in expected}
    assert answers == expected


def test_nobody_else_gets_an_address(live: Running, acme: httpx.Client, large: str) -> None:
    expected = {("globex", "documents.read"): 404, ("acme", "documents.write"): 403}
    for (tenant, scope), status in expected.items():
        with live.api(tenant, [scope]) as client:
            answer = client.get(large, params={"direct": "true"})
        assert (answer.status_code, "Location" in answer.headers) == (status, False)
    with live.client("acme.localhost") as client:
        answer = client.get(large, params={"direct": "true"})
    assert (answer.status_code, "Location" in answer.headers) == (401, False)
    deleted = upload(acme, LARGE + b"x")
    acme.delete(deleted.removesuffix("/content")).raise_for_status()
    assert acme.get(deleted, params={"direct": "true"}).status_code == 404


def test_the_console_redirects_to_the_bucket(live: Running, large: str) -> None:
    browser = Browser(live)
    document = large.split("/")[4]
    page = browser.at("acme", f"/console/documents/{document}/content")
    browser.get(page)
    assert urlsplit(browser.url).path != urlsplit(page).path, "nobody is signed in"
    browser.sign_in("ann@acme.test", "a long and quiet password", "acme")
    answer = browser.get(page)
    assert answer.status_code == 302
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    content = fetch(answer.headers["Location"])
    assert content.content == LARGE
    assert content.headers["Content-Disposition"] == "attachment; filename=\"_ber 1.bin\"; filename*=UTF-8''%C3%BCber%201.bin"


def test_what_is_published_or_shared_is_still_sent_by_the_appliance(live: Running, acme: httpx.Client, large: str) -> None:
    document = large.split("/")[4]
    share = acme.post(f"/api/v1/documents/{document}/shares", json={})
    share.raise_for_status()
    shared = urlsplit(share.json()["data"]["file_url"])
    published = acme.post(f"/api/v1/documents/{document}/publish", json={"path": "film.bin"})
    published.raise_for_status()
    for url in (shared, urlsplit(published.json()["data"]["url"])):
        with live.client(str(url.hostname)) as client:
            answer = client.get(url.path)
        assert (answer.status_code, answer.content) == (200, LARGE)


def test_no_address_is_logged(acme: httpx.Client, large: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert acme.get(large, params={"direct": "true"}).status_code == 302
    own = [record for record in caplog.records if not record.name.startswith("http")]  # those of the client
    assert "X-Amz-Signature" not in "".join(str(record.__dict__) for record in own)
