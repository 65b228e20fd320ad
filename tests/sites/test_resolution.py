"""Resolution of the paths of a WebApp, without a server."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.sites.front.representation import parse_accept_encoding
from appliance.sites.webapps.resolution import FileMatch, Moved, Resolver
from appliance.webapps import ServedFile, ServedVersion
from appliance.webapps.files import parse_redirects, to_json

FILES = ("index.html", "about.html", "docs/index.html", "assets/app-3f2a1b9c.js", "a b.txt", "404.html")


def resolver(rules: str = "", *, spa: bool = False, files: tuple[str, ...] = FILES) -> Resolver:
    parsed, problems = parse_redirects(rules)
    assert problems == []
    served = {path: ServedFile("0" * 64, 1) for path in files}
    return Resolver(ServedVersion(1, spa, {"redirects": to_json(parsed)}, served, None, 0))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", FileMatch("index.html")),
        ("/index.html", FileMatch("index.html")),
        ("/about", FileMatch("about.html")),
        ("/about.html", FileMatch("about.html")),
        ("/about/", None),
        ("/docs", Moved("/docs/", 301)),
        ("/docs/", FileMatch("docs/index.html")),
        ("/a b.txt", FileMatch("a b.txt")),
        ("/assets", None),
        ("/missing", None),
        ("//index.html", None),
        ("/../index.html", None),
        ("/docs/../index.html", None),
        ("/index.html/", None),
        ("", FileMatch("index.html")),
    ],
)
def test_a_path_resolves_to_its_file(path: str, expected: object) -> None:
    assert resolver().resolve(path or "/", {}) == expected


def test_a_single_page_app_serves_its_paths_but_no_missing_files() -> None:
    one = resolver(spa=True)
    assert one.resolve("/orders/17", {}) == FileMatch("index.html")
    assert one.resolve("/about", {}) == FileMatch("about.html")
    assert one.resolve("/assets/gone.js", {}) is None


def test_a_file_takes_precedence_unless_the_rule_is_forced() -> None:
    assert resolver("/about /docs/ 302").resolve("/about", {}) == FileMatch("about.html")
    assert resolver("/about /docs/ 302!").resolve("/about", {}) == Moved("/docs/", 302)
    assert resolver("/* /index.html 200").resolve("/x/y.js", {}) == FileMatch("index.html")
    assert resolver("/* /index.html 200").resolve("/about", {}) == FileMatch("about.html")
    assert resolver("/old /404.html 404").resolve("/old", {}) == FileMatch("404.html", 404)
    assert resolver("/old /nowhere 200").resolve("/old", {}) is None
    assert resolver().not_found_page() == FileMatch("404.html", 404)
    assert resolver(files=("index.html",)).not_found_page() is None


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_no_path_redirects_to_another_host(path: str) -> None:
    for rules in ("/* /:splat 302", "/go/:name /:name 302", "/go/* /:splat/x 301!"):
        for start in ("/", "//", "/go/", "/go//"):
            resolution = resolver(rules).resolve(start + path, {})
            if isinstance(resolution, Moved):
                assert resolution.location.startswith("/")
                assert not resolution.location.startswith(("//", "/\\"))
                assert resolution.location.isascii()
                assert not set(resolution.location) & set("\r\n\t ")


def test_accept_encoding_is_parsed_with_weights() -> None:
    assert parse_accept_encoding("gzip, deflate, br, zstd") == {"gzip", "deflate", "br", "zstd"}
    assert parse_accept_encoding("gzip;q=0, zstd;q=0.5") == {"zstd"}
    assert parse_accept_encoding("xgzip, nonsense;;, ;q=1") == {"xgzip"}
    assert parse_accept_encoding("GZIP;Q=1") == {"gzip"}
