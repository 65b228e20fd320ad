"""WebApps on their hosts: published files with the HTTP semantics of RFC 9110."""

import gzip
import hashlib
import os
import socket
from collections.abc import Iterator

import brotli
import httpx
import pytest
import zstandard

from appliance.core.scope import TenantScope
from appliance.solutions import write_zip
from appliance.testing.running import Running
from appliance.webapps.files import Compression
from appliance.webapps.publishing import ServedState, served_grants
from tests.sandbox.paused_steps import until

PAGE = b"<!doctype html><title>Shop</title><script src=/assets/app-3f2a1b9c.js></script>"
SCRIPT = b"console.log('hello, dear reader of this file')\n" * 100
LARGE = os.urandom(700_000)
FILES = {
    "index.html": PAGE, "404.html": b"<h1>Nothing here</h1>", "assets/app-3f2a1b9c.js": SCRIPT, "large.bin": LARGE,
    "empty.txt": b"",
    "docs/index.html": b"<h1>Docs</h1>", "_redirects": b"/old /docs/ 302\n/go/* /:splat 301\n/install /docs/#install 301\n",
    "_headers": b"/*\n  X-Shop: yes\n/docs/*\n  Content-Security-Policy: frame-ancestors 'none'\n  Cache-Control: no-store\n",
}  # fmt: skip


def deploy(acme: httpx.Client, app: str, files: dict[str, bytes], *, publish: bool = True) -> int:
    path = f"/api/v1/webapps/{app}/versions"
    response = acme.post(path, content=write_zip(files), headers={"Content-Type": "application/zip"}).raise_for_status()
    number = int(response.json()["data"]["version"])
    if publish:
        acme.post(f"{path}/{number}/publish", json={}).raise_for_status()
    return number


def new_app(acme: httpx.Client, app: str) -> None:
    acme.post("/api/v1/webapps", json={"id": app}).raise_for_status()


def site(running: Running, host: str) -> httpx.Client:
    client = running.client(f"{host}.content.localhost")
    client.headers["Accept-Encoding"] = "identity"
    return client


@pytest.fixture(scope="module")
def shop(running: Running, acme: httpx.Client) -> Iterator[httpx.Client]:
    """A visitor of a published app."""
    new_app(acme, "site-shop")
    deploy(acme, "site-shop", FILES)
    with site(running, "site-shop--acme") as client:
        yield client


def test_a_page_is_served_with_its_own_headers_and_none_of_the_console(shop: httpx.Client) -> None:
    answer = shop.get("/")
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["etag"] == f'"{hashlib.sha256(PAGE).hexdigest()}"'
    assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert answer.headers["x-shop"] == "yes"
    assert "cross-origin-opener-policy" not in answer.headers
    assert "set-cookie" not in answer.headers
    docs = shop.get("/docs/").headers
    assert (docs["content-security-policy"], docs["cache-control"]) == ("frame-ancestors 'none'", "no-store")
    assert "x-frame-options" not in docs


def test_a_file_with_a_hash_is_cached_forever(shop: httpx.Client) -> None:
    assert shop.get("/assets/app-3f2a1b9c.js").headers["cache-control"] == "public, max-age=31536000, immutable"


def test_the_best_accepted_coding_is_sent(shop: httpx.Client, running: Running) -> None:
    """What takes long to compress follows without another publishing; what has been served keeps its ETag."""
    def ask(accept: str) -> tuple[str | None, bytes, str, str]:
        with shop.stream("GET", "/assets/app-3f2a1b9c.js", headers={"Accept-Encoding": accept}) as answer:
            body = b"".join(answer.iter_raw())
            return answer.headers.get("content-encoding"), body, answer.headers["etag"], answer.headers["vary"]

    before = ask("gzip")
    Compression(running.services.blobs).compress_all()
    until(lambda: ask("br")[0] == "br")  # the appliance's own may be at it, too
    plain, zipped, small = ask("identity"), ask("gzip"), ask("gzip, br, zstd")
    assert zipped == before
    assert (plain[0], plain[1]) == (None, SCRIPT)
    assert (zipped[0], gzip.decompress(zipped[1])) == ("gzip", SCRIPT)
    assert len(small[1]) == min(len(ask(coding)[1]) for coding in ("gzip", "br", "zstd"))
    assert (ask("zstd")[0], ask("br")[0]) == ("zstd", "br")
    assert zstandard.decompress(ask("zstd")[1]) == brotli.decompress(ask("br")[1]) == SCRIPT
    assert ask("gzip;q=0")[0] is None
    assert len({plain[2], zipped[2], ask("zstd")[2], ask("br")[2]}) == 4
    assert {plain[3], zipped[3], small[3]} == {"accept-encoding"}


@pytest.mark.parametrize(
    ("byte_range", "start", "end"),
    [("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), ("bytes=699990-", 699_990, 700_000), ("bytes=-7", 699_993, 700_000),
     ("bytes=-9999999", 0, 700_000), ("bytes=5-9999999", 5, 700_000), ("bytes=0-400000", 0, 400_001)],
)  # fmt: skip
def test_a_range_is_served(shop: httpx.Client, byte_range: str, start: int, end: int) -> None:
    answer = shop.get("/large.bin", headers={"Range": byte_range, "Accept-Encoding": "gzip"})
    assert (answer.status_code, answer.content) == (206, LARGE[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/700000"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("byte_range", ["bytes=1-2,4-5", "lines=1-2", "bytes=5-1", "bytes=a-b", "bytes=-", "nonsense"])
def test_an_unsupported_range_gets_the_complete_file(shop: httpx.Client, byte_range: str) -> None:
    answer = shop.get("/index.html", headers={"Range": byte_range})
    assert (answer.status_code, answer.content) == (200, PAGE)


@pytest.mark.parametrize(
    ("path", "byte_range"), [("/index.html", "bytes=99999-"), ("/index.html", "bytes=-0"), ("/empty.txt", "bytes=0-")]
)
def test_a_range_beyond_the_end_is_refused_with_the_size(shop: httpx.Client, path: str, byte_range: str) -> None:
    answer = shop.get(path, headers={"Range": byte_range})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(FILES[path[1:]])}"


def test_conditional_requests_are_evaluated(shop: httpx.Client) -> None:
    etag = shop.get("/").headers["etag"]
    for headers, status in (
        ({"If-None-Match": etag}, 304),
        ({"If-None-Match": f'"x", W/{etag}'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"x"'}, 200),
        ({"If-Match": etag}, 200),
        ({"If-Match": f'"x", {etag}'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": f"W/{etag}"}, 412),
        ({"If-Match": '"x"'}, 412),
        ({"Range": "bytes=0-3", "If-Range": etag}, 206),
        ({"Range": "bytes=0-3", "If-Range": '"x"'}, 200),
        ({"Range": "bytes=0-3", "If-Range": f"W/{etag}"}, 200),
        ({"Range": "bytes=0-3", "If-None-Match": etag}, 304),
    ):
        answer = shop.get("/", headers=headers)
        assert answer.status_code == status, headers
        if status == 304:
            assert (answer.content, answer.headers["etag"]) == (b"", etag)
            assert "cache-control" in answer.headers


def stable_headers(answer: httpx.Response) -> dict[str, str]:
    """The headers about the content, without those that change with each response."""
    return {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id", "connection")}


def test_head_matches_get(shop: httpx.Client) -> None:
    for path in ("/", "/large.bin", "/empty.txt", "/assets/app-3f2a1b9c.js", "/nowhere", "/docs"):
        for coding in ("identity", "br", "zstd, gzip"):
            whole, head = (shop.request(method, path, headers={"Accept-Encoding": coding}) for method in ("GET", "HEAD"))
            assert (head.status_code, head.content) == (whole.status_code, b""), (path, coding)
            assert stable_headers(head) == stable_headers(whole), (path, coding)
    part = shop.head("/large.bin", headers={"Range": "bytes=0-9"})  # RFC 9110, section 14.2: a range is for GET alone
    assert (part.status_code, part.headers["content-length"]) == (200, str(len(LARGE)))


def test_redirects_and_missing_pages(shop: httpx.Client) -> None:
    moved = shop.get("/old?a=1")
    assert (moved.status_code, moved.headers["location"]) == (302, "/docs/?a=1")
    assert shop.get("/install?utm=1").headers["location"] == "/docs/?utm=1#install"
    assert shop.get("/install").headers["location"] == "/docs/#install"
    assert shop.get("/go//evil.example/x").headers["location"] == "/evil.example/x"
    assert shop.get("/docs").headers["location"] == "/docs/"
    missing = shop.get("/nowhere")
    assert (missing.status_code, missing.content) == (404, b"<h1>Nothing here</h1>")
    for path in ("/_redirects", "/_headers"):
        assert shop.get(path).status_code == 404


def test_a_file_can_only_be_read(shop: httpx.Client) -> None:
    answer = shop.post("/", content=b"x" * 1000)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    for path in ("/api/v1/tenant", "/console/", "/static/console.css", "/metrics", "/api-docs/openapi.json", "/hooks/x", "/mcp"):
        assert shop.get(path).content == b"<h1>Nothing here</h1>", path


def test_a_path_outside_is_not_found(running: Running, shop: httpx.Client) -> None:
    for path in (
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2fkey",
        "/docs/%00",
        "/docs\\..\\index.html",
        "/./index.html",
    ):
        with socket.create_connection(("127.0.0.1", running.config.server.port), 30) as client:
            host = f"site-shop--acme.content.localhost{running.config.port_suffix}"
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            got = b"".join(iter(lambda: client.recv(65536), b""))
        assert b" 404 " in got.splitlines()[0], path
        assert b"root:" not in got


UNKNOWN = (
    "nothing--acme", "site-shop--globex", "site-shop--nobody", "site-shop", "acme", "cdn--nobody", "v1-site-shop--nobody",
    "v1-cdn--acme",
    "a.site-shop--acme", "x--y--z",
)  # fmt: skip


@pytest.mark.parametrize("host", UNKNOWN)
def test_an_unknown_host_is_refused(running: Running, shop: httpx.Client, host: str) -> None:
    with site(running, host) as client:
        answer = client.get("/")
        assert (answer.status_code, answer.json()["error"]["code"]) == (421, "unknown_host")


def test_a_new_version_is_served_at_once_and_open_pages_find_their_files(running: Running, acme: httpx.Client) -> None:
    new_app(acme, "site-skew")
    with site(running, "site-skew--acme") as visitor:
        assert visitor.get("/").status_code == 404
        deploy(acme, "site-skew", {"index.html": b"one", "assets/app-aaaa1111.js": b"1", "plain.js": b"1"})
        for turn in range(2, 6):
            files = {"index.html": str(turn).encode(), f"assets/app-aaaa111{turn}.js": b"n"}
            number = deploy(acme, "site-skew", files, publish=False)
            assert visitor.get("/").content != str(turn).encode()
            acme.post(f"/api/v1/webapps/site-skew/versions/{number}/publish", json={}).raise_for_status()
            assert visitor.get("/").content == str(turn).encode()
            assert visitor.get("/assets/app-aaaa1111.js").content == b"1"
        assert visitor.get("/plain.js").status_code == 404
        assert visitor.get("/assets/app-bbbb1111.js").status_code == 404
        acme.post("/api/v1/webapps/site-skew/rollback", json={"version": 1}).raise_for_status()
        assert visitor.get("/").content == b"one"
        acme.post("/api/v1/webapps/site-skew/unpublish").raise_for_status()
        assert visitor.get("/").status_code == 404
        acme.delete("/api/v1/webapps/site-skew").raise_for_status()
        assert visitor.get("/").status_code == 421


def test_a_removed_file_is_gone_unless_an_open_page_may_need_it(running: Running, acme: httpx.Client) -> None:
    new_app(acme, "site-taken")
    removed = {"customer-contracts.pdf": b"%PDF", "salaries-20251122.csv": b"s", "config.production.json": b"{}"}
    deploy(acme, "site-taken", {"index.html": b"one", "assets/app-DiwrgTda.js": b"1"} | removed)
    with site(running, "site-taken--acme") as visitor:
        assert [visitor.get(f"/{name}").status_code for name in removed] == [200] * 3
        deploy(acme, "site-taken", {"index.html": b"two"})
        assert [visitor.get(f"/{name}").status_code for name in removed] == [404] * 3
        assert visitor.get("/assets/app-DiwrgTda.js").content == b"1"


def test_older_versions_with_other_access_are_not_served(running: Running, acme: httpx.Client) -> None:
    new_app(acme, "site-opened")
    secret = {"public/index.html": b"inside", "public/assets/app-aaaa1111.js": b"inside"}
    deploy(acme, "site-opened", {"app.yaml": b"access: members"} | secret)
    deploy(acme, "site-opened", {"index.html": b"two", "assets/app-bbbb1111.js": b"2"})
    deploy(acme, "site-opened", {"index.html": b"three"})
    with site(running, "site-opened--acme") as visitor:
        assert visitor.get("/assets/app-bbbb1111.js").content == b"2"
        assert visitor.get("/assets/app-aaaa1111.js").status_code == 404


def test_a_damaged_content_is_reported(running: Running, acme: httpx.Client) -> None:
    new_app(acme, "site-lost")
    content = b"soon to be lost in a site"
    deploy(acme, "site-lost", {"index.html": content})
    [stored] = (running.config.data / "blobs").rglob(f"{hashlib.sha256(content).hexdigest()}.*")
    stored.unlink()
    with site(running, "site-lost--acme") as visitor:
        answer = visitor.get("/")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    acme.delete("/api/v1/webapps/site-lost", params={"force": "true"}).raise_for_status()


def test_any_query_is_accepted(shop: httpx.Client) -> None:
    assert shop.get("/?" + "a=1&" * 2_000).status_code == 200
    assert shop.get("/?%ff&=&&a=%00").status_code == 200


def test_an_outdated_lookup_is_not_cached(running: Running, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    new_app(acme, "site-overtaken")
    deploy(acme, "site-overtaken", {"index.html": b"one"})
    deploy(acme, "site-overtaken", {"index.html": b"two"}, publish=False)
    webapps = running.services.webapps.apps
    look = served_grants.find_served
    looked: list[int | None] = []

    def publish_meanwhile(scope: TenantScope, app: str) -> ServedState:
        result = look(scope, app)
        if app == "site-overtaken" and not looked:
            looked.append(result.number)
            webapps.publish_version(scope, app, 2)
        return result

    monkeypatch.setattr(served_grants, "find_served", publish_meanwhile)
    with site(running, "site-overtaken--acme") as client:
        client.get("/")
        assert client.get("/").content == b"two"
    assert looked == [1]
