"""Previews of versions that are not published: limited to holders of a link, for a limited time, never cached or indexed."""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.testing.running import Running
from appliance.webapps.publishing import previews
from tests.sites.test_webapps import deploy, new_app, site

FILES = {
    "index.html": b"<h1>two</h1>", "docs/index.html": b"<h1>docs</h1>", "assets/app-3f2a1b9c.js": b"let a = 2",
    "_redirects": b"/old /docs/ 302\n", "_headers": b"/*\n  Cache-Control: public, max-age=600\n  X-Robots-Tag: all\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def visitor(running: Running, acme: httpx.Client) -> Iterator[httpx.Client]:
    """A browser at the preview of version 2 of an app whose version 1 is published."""
    new_app(acme, "looked-at")
    deploy(acme, "looked-at", {"index.html": b"<h1>one</h1>", "assets/old-3f2a1b9c.js": b"let a = 1"})
    deploy(acme, "looked-at", FILES, publish=False)
    with site(running, "v2-looked-at--acme") as client:
        yield client


def link_of(acme: httpx.Client, app: str, number: int, **body: str) -> str:
    answer = acme.post(f"/api/v1/webapps/{app}/versions/{number}/preview", json=body).raise_for_status()
    return str(answer.json()["data"]["url"])


def token_of(url: str) -> str:
    return urlsplit(url).query.removeprefix(f"{previews.PARAMETER}=")


def open_link(client: httpx.Client, url: str) -> dict[str, str]:
    """The headers that a browser sends after it followed the link."""
    answer = client.get(f"/?{urlsplit(url).query}")
    assert answer.status_code == 303
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def assert_private(answer: httpx.Response) -> None:
    assert answer.headers.get_list("cache-control") == ["private, no-store"]
    assert answer.headers.get_list("x-robots-tag") == ["noindex"]


def test_a_link_is_exchanged_for_a_cookie(visitor: httpx.Client, acme: httpx.Client) -> None:
    url = link_of(acme, "looked-at", 2)
    assert urlsplit(url).hostname == "v2-looked-at--acme.content.localhost"
    token = token_of(url)
    deep = f"//elsewhere.example/a%20b?x=1&gos_preview={token}&y="
    answer = visitor.get(visitor.base_url.copy_with(raw_path=deep.encode()))
    assert (answer.status_code, answer.headers["location"]) == (303, "/elsewhere.example/a%20b?x=1&y=")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-gos_preview=")
    assert set(cookie.split("; ")[1:]) >= {"Path=/", "Secure", "HttpOnly", "SameSite=Lax"}
    assert_private(answer)
    came_in = open_link(visitor, url)
    page = visitor.get("/", headers=came_in)
    assert (page.status_code, page.text) == (200, "<h1>two</h1>")
    assert_private(page)
    for path in ("/assets/app-3f2a1b9c.js", "/old", "/docs/", "/absent", "/assets/old-3f2a1b9c.js"):
        assert_private(visitor.get(path, headers=came_in))
    assert visitor.get("/assets/old-3f2a1b9c.js", headers=came_in).status_code == 404


def test_access_requires_a_link(visitor: httpx.Client) -> None:
    for path in ("/", "/docs/", "/absent", "/?gos_preview=", f"/?gos_preview=9999999999999.{'A' * 43}"):
        answer = visitor.get(path)
        assert answer.status_code == 403
        assert "ask the sender of the link for a new one" in answer.json()["error"]["message"]
        assert_private(answer)


def test_a_link_is_valid_for_one_version_of_one_app_of_one_tenant(
    running: Running, visitor: httpx.Client, acme: httpx.Client, globex: httpx.Client
) -> None:
    for client in (acme, globex):
        new_app(client, "looked-too")
        deploy(client, "looked-too", {"index.html": b"<h1>other</h1>"}, publish=False)
    token = token_of(link_of(acme, "looked-at", 2))
    for host in ("v1-looked-at--acme", "v1-looked-too--acme", "v1-looked-too--globex", "v9-looked-at--acme"):
        with site(running, host) as client:
            assert client.get(f"/?gos_preview={token}").status_code == 403
    expires, _, digest = token.partition(".")
    assert visitor.get(f"/?gos_preview={int(expires) + 1}.{digest}").status_code == 403
    assert "gos_preview" not in visitor.get(f"/?gos_preview={token}").headers["location"]
    with site(running, "looked-at--acme") as published:
        assert published.get("/", headers={"Cookie": f"__Host-gos_preview={token}"}).text == "<h1>one</h1>"


def test_a_link_expires_and_is_invalid_for_a_recreated_app(running: Running, acme: httpx.Client) -> None:
    new_app(acme, "looked-again")
    deploy(acme, "looked-again", {"index.html": b"<h1>first</h1>"}, publish=False)
    scope = running.tenant("acme")
    expired = previews.preview_version(scope, running.services.sealer, "looked-again", 1, 1)
    with site(running, "v1-looked-again--acme") as client:
        came_in = open_link(client, link_of(acme, "looked-again", 1))
        assert client.get("/", headers=came_in).text == "<h1>first</h1>"
        assert client.get(f"/?gos_preview={expired.token}").status_code == 403
        acme.delete("/api/v1/webapps/looked-again").raise_for_status()
        assert client.get("/", headers=came_in).status_code == 403
        new_app(acme, "looked-again")
        deploy(acme, "looked-again", {"index.html": b"<h1>second</h1>"}, publish=False)
        assert client.get("/", headers=came_in).status_code == 403


def test_only_ready_versions_have_links(acme: httpx.Client) -> None:
    new_app(acme, "looked-early")
    path = "/api/v1/webapps/looked-early/versions"
    acme.post(path, json={"files": {"index.html": {"sha256": "0" * 64, "size": 1}}}).raise_for_status()
    assert acme.post(f"{path}/1/preview", json={}).status_code == 409
    assert acme.post(f"{path}/2/preview", json={}).status_code == 404
    assert acme.post(f"{path}/1/preview", json={"expires_in": "31d"}).status_code == 422


def test_a_link_is_audited_without_its_token(running: Running, acme: httpx.Client, visitor: httpx.Client) -> None:
    token = token_of(link_of(acme, "looked-at", 2))
    entries = acme.get("/api/v1/logs/audit?action=webapp.preview&limit=500").json()["data"]
    assert any(entry["subject"] == "looked-at" and json.loads(entry["fields"])["version"] == 2 for entry in entries)
    assert all(token not in str(entry) for entry in entries)
