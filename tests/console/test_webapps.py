"""Pages of WebApps: versions, publication, permissions, previews and deletion."""

import re
from collections.abc import Callable

import httpx
import pytest

from appliance.solutions import write_zip
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.processes.world import wait_until


@pytest.fixture
def shop(acme: httpx.Client) -> str:
    """A WebApp with two versions, the first published."""
    name = fresh("console")
    acme.post("/api/v1/webapps", json={"id": name, "name": f"The <b>{name}</b>"}).raise_for_status()
    for number in (1, 2):
        archive = write_zip({"index.html": f"<h1>{number}</h1>".encode()})
        path = f"/api/v1/webapps/{name}/versions?message=made+{number}"
        acme.post(path, content=archive, headers={"Content-Type": "application/zip"}).raise_for_status()
    acme.post(f"/api/v1/webapps/{name}/versions/1/publish", json={}).raise_for_status()
    return name


def get_published_version(acme: httpx.Client, app: str) -> int | None:
    number: int | None = acme.get(f"/api/v1/webapps/{app}").json()["data"].get("published_version")
    return number


def test_a_webapp_is_published_rolled_back_and_unpublished_by_its_page(owner: Browser, acme: httpx.Client, shop: str) -> None:
    at = owner.at("acme", f"/console/webapps/{shop}")
    page = owner.get(at).text
    assert f"The &lt;b&gt;{shop}&lt;/b&gt;" in page
    assert page.index("made 2") < page.index("made 1")
    assert "Roll back" not in page
    assert owner.post(f"{at}/rollback", {"version": "2"}).status_code == 409
    assert owner.post(f"{at}/publish", {"version": "2", "current": "1"}).status_code == 200
    assert "Roll back to version 1" in owner.get(at).text
    assert get_published_version(acme, shop) == 2
    stale = owner.post(f"{at}/publish", {"version": "1", "current": "1"})
    assert (stale.status_code, "Version 2 is published now" in stale.text) == (409, True)
    assert owner.post(f"{at}/rollback", {}).status_code == 422
    owner.post(f"{at}/rollback", {"version": "1"})
    assert get_published_version(acme, shop) == 1
    assert "Roll back to version 2" in owner.get(at).text
    owner.post(f"{at}/unpublish", {})
    assert get_published_version(acme, shop) is None
    assert owner.post(f"{at}/publish", {"version": "x", "current": "0"}).status_code == 422


def test_a_reader_gets_no_publish_form(signed_in: Callable[[str], Browser], acme: httpx.Client, shop: str) -> None:
    viewer = signed_in("viewer@acme.test")
    at = viewer.at("acme", f"/console/webapps/{shop}")
    assert "made 2" in viewer.get(at).text
    assert '<form method="post" action="/console/webapps' not in viewer.get(at).text
    assert viewer.post(f"{at}/unpublish", {}).status_code == 403
    assert get_published_version(acme, shop) == 1
    stranger = signed_in("owner@globex.test")
    assert stranger.get(stranger.at("globex", f"/console/webapps/{shop}")).status_code == 404


def test_only_a_web_address_becomes_a_link(owner: Browser, acme: httpx.Client, running: Running) -> None:
    app, spec = fresh("console"), {"sha256": "0" * 64, "size": 1}
    acme.post("/api/v1/webapps", json={"id": app}).raise_for_status()
    path = f"/api/v1/webapps/{app}/versions"
    for address in ("javascript:alert(1)", "https://ci.example/1"):
        source = {"commit": "abc1234", "ci_url": address}
        acme.post(path, json={"files": {"index.html": spec}, "source": source}).raise_for_status()
    page = owner.get(owner.at("acme", f"/console/webapps/{app}")).text
    assert "javascript:" not in page
    assert 'href="https://ci.example/1"' in page


def test_results_of_version_checks_are_shown(owner: Browser, acme: httpx.Client, shop: str) -> None:
    archive = write_zip({"app.yaml": b"smoke: [{path: /404}, {path: /gone}]", "public/404.html": b"<b>nothing & nobody</b>"})
    path = f"/api/v1/webapps/{shop}/versions"
    acme.post(path, content=archive, headers={"Content-Type": "application/zip"}).raise_for_status()
    at = owner.at("acme", f"/console/webapps/{shop}")
    owner.post(f"{at}/publish", {"version": "3", "current": "1"})
    wait_until(lambda: "answered 404 instead of 200" in owner.get(at).text and "refresh" not in owner.get(at).text, 60)
    page = owner.get(at).text
    assert "&lt;b&gt;nothing &amp; nobody&lt;/b&gt;" in page
    evidence = page.partition('<tr><td colspan="6">')[2].partition("</tr>")[0]
    assert "2 checks, 1 failed" in evidence
    assert "nothing &amp; nobody" in evidence
    assert get_published_version(acme, shop) == 1


def test_a_preview_link_needs_the_permission_to_write(
    running: Running, signed_in: Callable[[str], Browser], owner: Browser, shop: str
) -> None:
    page = owner.post(owner.at("acme", f"/console/webapps/{shop}/preview"), {"version": "2"}).text
    link = re.search(r'href="http://(v2-[^:/]+)[^/]*(/\?gos_preview=[^"]+)"', page)
    assert link is not None
    with running.client(link[1]) as visitor:
        assert visitor.get(link[2]).status_code == 303
    viewer = signed_in("viewer@acme.test")
    assert viewer.post(viewer.at("acme", f"/console/webapps/{shop}/preview"), {"version": "2"}).status_code == 403


def test_the_deletion_of_a_webapp_lists_what_is_deleted(
    signed_in: Callable[[str], Browser], owner: Browser, acme: httpx.Client, shop: str
) -> None:
    acme.post(f"/api/v1/webapps/{shop}/domains", json={"host": f"{shop}.example.org"}).raise_for_status()
    viewer = signed_in("viewer@acme.test")
    assert "delete-webapp" not in viewer.get(viewer.at("acme", f"/console/webapps/{shop}")).text
    assert viewer.post(viewer.at("acme", f"/console/webapps/{shop}/delete"), {"force": "yes"}).status_code == 403
    at = owner.at("acme", f"/console/webapps/{shop}")
    page = owner.get(at).text
    assert f"Permanently deletes The &lt;b&gt;{shop}&lt;/b&gt; with its 2 versions" in page
    assert f"These domains are released: {shop}.example.org." in page
    assert 'name="force" value="yes" required' in page
    refused = owner.post(f"{at}/delete", {})
    assert (refused.status_code, "The WebApp is published" in refused.text) == (409, True)
    assert get_published_version(acme, shop) == 1
    owner.post(f"{at}/delete", {"force": "yes"})
    assert owner.url == owner.at("acme", "/console/webapps")
    assert acme.get(f"/api/v1/webapps/{shop}").status_code == 404
    assert owner.post(f"{at}/delete", {"force": "yes"}).status_code == 404


def test_an_unpublished_app_is_deleted_without_force(owner: Browser, acme: httpx.Client) -> None:
    app = fresh("console")
    acme.post("/api/v1/webapps", json={"id": app}).raise_for_status()
    at = owner.at("acme", f"/console/webapps/{app}")
    page = owner.get(at).text
    assert ('name="force"' in page, f"Permanently deletes {app}." in page) == (False, True)
    owner.post(f"{at}/delete", {})
    assert owner.url == owner.at("acme", "/console/webapps")
    assert acme.get(f"/api/v1/webapps/{app}").status_code == 404
