"""Every answer of the base host and of tenants' hosts carries the headers that protect browsers, whatever answers."""

from collections.abc import Iterator

import httpx
import pytest

from appliance.testing.running import Running

PAGES = ("/", "/sign-in", "/console/", "/console/no-such-page", "/api-docs/", "/no-such-file")
DATA = ("/api/v1/tenant", "/api/v1/no-such", "/api-docs/openapi.json", "/healthz", "/readyz", "/mcp", "/hooks/none", "/metrics")
FILES = ("/static/console/console.css", "/static/console/console.js", "/static/", "/static/none.js")
PUBLIC = ("/static", "/api-docs", "/healthz", "/readyz", "/metrics")  # what a cache may keep, or nobody has to keep secret


@pytest.fixture(scope="module", params=["localhost", "acme.localhost"])
def host(running: Running, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with running.client(request.param, {"X-API-Key": running.key("acme")}) as client:
        yield client


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", [*PAGES, *DATA, *FILES])
def test_every_answer_has_the_protective_headers(host: httpx.Client, path: str, method: str) -> None:
    answer = host.request(method, path)
    headers = answer.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] in ("same-origin", "no-referrer")
    assert (headers["x-frame-options"], headers["cross-origin-opener-policy"]) == ("DENY", "same-origin")
    (policy,) = headers.get_list("content-security-policy")
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert {directives[name] for name in ("default-src", "base-uri", "frame-ancestors")} == {"'none'"}, policy
    assert "object-src" not in directives, "it falls back to default-src"
    assert "unsafe" not in policy
    if answer.content:
        media = headers["content-type"].replace('"', "").lower()
        assert "charset=utf-8" in media if media.startswith("text/") else media.startswith("application/"), media
    if answer.is_success and not path.startswith(PUBLIC):
        assert "no-store" in headers["cache-control"]


def test_a_host_that_is_not_served_is_answered_with_the_headers_too(running: Running) -> None:
    with running.client("unknown.example") as client:
        answer = client.get("/")
    assert answer.status_code == 421
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/static", "/static/", "/static/console/", "/api-docs/none/", "/"])
def test_a_folder_of_files_is_not_listed(host: httpx.Client, path: str) -> None:
    answer = host.get(path, follow_redirects=False)
    assert answer.status_code in (303, 302, 404)
    assert "console.css" not in answer.text
