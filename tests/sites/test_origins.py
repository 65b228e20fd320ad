"""Detection of cross-site calls from what browsers say about a request."""

import pytest

from appliance.core.errors import BrowserCallRefused
from appliance.sites.webapps.origins import check_origin

OWN = "https://shop.example.com"
JSON = {"content-type": "application/json"}
FOLLOWED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def passes(method: str, headers: dict[str, str], *, public: bool = True) -> bool:
    try:
        check_origin(method, OWN, headers, public=public)
    except BrowserCallRefused:
        return False
    return True


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "https://other.example.com", "https://example.com", "https://a.shop.example.com", "http://shop.example.com",
        "https://shop.example.com:8443", "https://shop.example.com.evil.example", "https://shop.example.comx", "shop.example.com",
        "https://shop.example.com/", "https://shop.example.com, https://evil.example",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_the_origin_must_match_exactly(origin: str, method: str) -> None:
    assert not passes(method, {"origin": origin, **JSON})


def test_the_apps_own_pages_can_do_everything() -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        for headers in ({"origin": OWN}, {"origin": "HTTPS://Shop.Example.com"}, {"sec-fetch-site": "same-origin"}):
            assert passes(method, {**headers, "cookie": "a=b"}, public=False), (method, headers)


@pytest.mark.parametrize("site", ["same-site", "cross-site", "none", "", "Same-Origin", "same-origin, same-origin"])
def test_sec_fetch_site_takes_precedence(site: str) -> None:
    for headers in ({}, {"origin": OWN}, {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}):
        assert not passes("POST", {"sec-fetch-site": site, **headers, **JSON})
        assert not passes("DELETE", {"sec-fetch-site": site, **headers})


def test_a_link_can_only_read() -> None:
    for method in ("GET", "HEAD"):
        assert passes(method, FOLLOWED, public=False)
        assert passes(method, {"sec-fetch-site": "none"}, public=False)
        for dest in ("iframe", "object", "embed", "image", "script"):
            assert not passes(method, {**FOLLOWED, "sec-fetch-dest": dest})
        assert not passes(method, {**FOLLOWED, "sec-fetch-mode": "no-cors"})
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert not passes(method, FOLLOWED)


def test_without_browser_headers_only_json_without_cookies_passes() -> None:
    assert passes("POST", JSON)
    assert passes("POST", {"content-type": "Application/JSON; charset=utf-8"})
    assert all(passes(method, {}) for method in ("PUT", "PATCH", "DELETE", "GET"))
    for media in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data", "", "text/plain; application/json"):
        assert not passes("POST", {"content-type": media})
    assert not passes("POST", {})
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert not passes(method, {**JSON, "cookie": "a=b"}), "a cookie comes from a browser"
        assert not passes(method, JSON, public=False), "only what is open to everybody"
