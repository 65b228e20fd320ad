"""WebApps over the API: digest deploy, archive deploy, publishing, and what is refused."""

import hashlib
import json
from typing import Any

import httpx
import pytest

from appliance.solutions import write_zip
from tests.api.resources import fresh

WEBAPPS = "/api/v1/webapps"
PAGE, SCRIPT = b"<!doctype html><h1>Hello</h1>", b"let a = 1\n" * 200


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def data(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["data"]


def assert_refused(answer: httpx.Response, status: int, code: str) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    return str(error["message"])


@pytest.fixture
def app(acme: httpx.Client) -> str:
    """The address of a new WebApp."""
    webapp = data(acme.post(WEBAPPS, json={"id": f"w{fresh('x')}"}), 201)
    assert webapp["url"].startswith(f"http://{webapp['id']}--acme.content.localhost")
    return f"{WEBAPPS}/{webapp['id']}"


def manifest(**files: bytes) -> dict[str, Any]:
    return {"files": {path.replace("_", "."): {"sha256": sha(content), "size": len(content)} for path, content in files.items()}}


def test_a_digest_deploy_from_the_manifest_to_the_rollback(acme: httpx.Client, app: str) -> None:
    page, script = PAGE + fresh("page").encode(), SCRIPT + fresh("script").encode()  # which the tenant has not stored yet
    version = data(acme.post(f"{app}/versions", json={**manifest(index_html=page, a_js=script), "source": {"commit": "abc"}}), 201)
    assert (version["version"], version["state"], version["commit"]) == (1, "uploading", "abc")
    message = assert_refused(acme.post(f"{app}/versions/1/finalize"), 409, "conflict")
    assert "2 contents" in message
    for content in (page, script, script):
        data(acme.put(f"{app}/versions/1/blobs/{sha(content)}", content=content))
    assert data(acme.get(f"{app}/versions/1"))["required"] == []
    assert data(acme.post(f"{app}/versions/1/finalize"))["state"] == "ready"
    assert data(acme.post(f"{app}/versions/1/publish", json={"if_current": 0}))["state"] == "published"
    archive = write_zip({"index.html": page, "a.js": script + b"2"})
    zipped = {"Content-Type": "application/zip"}
    sent = acme.post(f"{app}/versions", content=archive, headers=zipped, params={"message": "second"})
    assert data(sent, 201)["message"] == "second"
    difference = data(acme.get(f"{app}/versions/2/diff"))
    assert difference == {"against": 1, "added": [], "changed": ["a.js"], "removed": [], "unchanged": 1}
    outdated = acme.post(f"{app}/versions/2/publish", json={"if_current": 3})
    assert "version 1 is published now" in assert_refused(outdated, 409, "conflict")
    data(acme.post(f"{app}/versions/2/publish", json={"if_current": 1}))
    assert data(acme.post(f"{app}/rollback", json={}))["version"] == 1
    assert data(acme.get(app))["published_version"] == 1
    assert "published_version" not in data(acme.post(f"{app}/unpublish"))
    actions = [
        entry["action"] for entry in data(acme.get("/api/v1/logs/audit", params={"subject": app.rpartition("/")[2], "limit": 5}))
    ]
    assert actions == ["webapp.unpublish", "webapp.publish", "webapp.publish", "webapp.ready", "webapp.version"]


def test_an_interrupted_deploy_can_be_continued(acme: httpx.Client, app: str) -> None:
    data(acme.post(f"{app}/versions", json=manifest(a_html=fresh("x").encode(), b_html=fresh("y").encode())), 201)
    assert len(data(acme.get(f"{app}/versions/1"))["required"]) == 2
    other = data(acme.post(f"{app}/versions", json=manifest(a_html=PAGE)), 201)
    assert other["version"] == 2


def test_content_with_another_hash_is_refused(acme: httpx.Client, app: str) -> None:
    content = fresh("content").encode()
    data(acme.post(f"{app}/versions", json=manifest(index_html=content)), 201)
    assert_refused(acme.put(f"{app}/versions/1/blobs/{sha(content)}", content=b"other"), 422, "validation_failed")
    assert_refused(acme.put(f"{app}/versions/1/blobs/{sha(b'other')}", content=b"other"), 404, "not_found")
    assert_refused(acme.put(f"{app}/versions/9/blobs/{sha(content)}", content=content), 404, "not_found")


def test_several_contents_are_uploaded_in_one_archive(acme: httpx.Client, globex: httpx.Client, app: str) -> None:
    first, second, third = (fresh("content").encode() for _ in range(3))
    data(acme.post(f"{app}/versions", json=manifest(a_html=first, b_html=second, c_html=third)), 201)

    def send(files: dict[str, bytes], client: httpx.Client = acme) -> httpx.Response:
        return client.post(f"{app}/versions/1/blobs", content=write_zip(files), headers={"Content-Type": "application/zip"})

    assert_refused(send({"any": first}, globex), 404, "not_found")
    assert data(send({"any": first})) == {"contents": 1, "bytes": len(first)}
    message = assert_refused(send({"a": second, "b": b"another", "c": third}), 422, "validation_failed")
    assert "member 'b' is not a content of version 1" in message
    assert data(acme.get(f"{app}/versions/1"))["required"] == [sha(third)]  # what came before the wrong one has been stored
    assert data(send({"x": first, "y": second, "z": third}))["contents"] == 3
    assert data(acme.post(f"{app}/versions/1/finalize"))["state"] == "ready"
    assert_refused(acme.post(f"{app}/versions/1/blobs", content=b"none"), 400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 422, "validation_failed"),
        (b'{"files": {}}', 422, "validation_failed"),
        (b'{"files": {"a": 1}}', 422, "validation_failed"),
        (b'{"colour": 1, "files": {}}', 422, "validation_failed"),
        (b'{"files": {"../a": {"sha256": "%s", "size": 0}}}' % sha(b"").encode(), 422, "validation_failed"),
        (b'{"files": {"a": {"sha256": "%s", "size": 999999999999}}}' % sha(b"").encode(), 413, "payload_too_large"),
        (b"[" * 200 + b"]" * 200, 413, "payload_too_large"),
    ],
)
def test_an_invalid_manifest_is_refused(acme: httpx.Client, app: str, body: bytes, status: int, code: str) -> None:
    assert_refused(acme.post(f"{app}/versions", content=body, headers={"Content-Type": "application/json"}), status, code)
    assert data(acme.get(f"{app}/versions")) == []


@pytest.mark.parametrize("body", [b"", b"no archive", write_zip({"../a": b""}), json.dumps(manifest(a=b"")).encode()])
def test_an_invalid_archive_is_refused(acme: httpx.Client, app: str, body: bytes) -> None:
    answer = acme.post(f"{app}/versions", content=body, headers={"Content-Type": "application/zip"})
    assert answer.status_code in (400, 422)
    assert data(acme.get(f"{app}/versions")) == []


def test_a_key_in_a_file_is_refused(acme: httpx.Client, app: str) -> None:
    archive = write_zip({"index.html": f"<script>key = '{acme.headers['x-api-key']}'</script>".encode()})
    answer = acme.post(f"{app}/versions", content=archive, headers={"Content-Type": "application/zip"})
    assert acme.headers["x-api-key"] not in answer.text
    assert "index.html" in assert_refused(answer, 422, "api_key_leaked")


def test_an_api_key_in_an_uploaded_content_is_refused(acme: httpx.Client, app: str) -> None:
    leak, fine = f"key = '{acme.headers['x-api-key']}' // {fresh('x')}".encode(), fresh("fine").encode()
    zipped = write_zip({"a": fine, "b": leak})
    for number, (method, path, content) in enumerate((("PUT", f"/{sha(leak)}", leak), ("POST", "", zipped)), 1):
        data(acme.post(f"{app}/versions", json=manifest(a_js=leak, b_js=fine)), 201)
        answer = acme.request(method, f"{app}/versions/{number}/blobs{path}", content=content)
        assert "a.js contains an API key" in assert_refused(answer, 422, "api_key_leaked")
        assert data(acme.get(f"{app}/versions/{number}"))["state"] == "failed"


def test_invalid_rules_are_reported_by_line(acme: httpx.Client, app: str) -> None:
    archive = write_zip({"index.html": PAGE, "_redirects": b"/a /b\n/c\n"})
    answer = acme.post(f"{app}/versions", content=archive, headers={"Content-Type": "application/zip"})
    assert "_redirects line 2" in assert_refused(answer, 422, "definition_invalid")
