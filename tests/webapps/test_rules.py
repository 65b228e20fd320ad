"""`_redirects` and `_headers` in Netlify's format."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.webapps.files import headers, redirects
from appliance.webapps.files.headers import headers_for, parse_headers, to_json
from appliance.webapps.files.redirects import Redirect, from_json, parse_redirects
from appliance.webapps.files.redirects import to_json as redirects_to_json

TEXT = """
# moved
/old        /new
/blog/*     /news/:splat   302
/shop/:id/details   /products/:id  301!   # forced
/search q=:words  /find/:words 303
/app/*      /index.html    200
/gone       /              410
/away       https://example.com/there 308
"""


def first(path: str, **headers: str) -> tuple[str, int] | None:
    rules, problems = parse_redirects(TEXT)
    assert problems == []
    for rule in from_json(redirects_to_json(rules)):
        if (target := rule.applies(path, headers)) is not None:
            return target, rule.status
    return None


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/old", {}, ("/new", 301)),
        ("/old/", {}, ("/new", 301)),
        ("/older", {}, None),
        ("/blog/2026/a b", {}, ("/news/2026/a%20b", 302)),
        ("/blog", {}, ("/news/", 302)),
        ("/blogs/x", {}, None),
        ("/shop/7/details", {}, ("/products/7", 301)),
        ("/shop/7/8/details", {}, None),
        ("/search", {}, None),
        ("/search", {"q": "red shoes"}, ("/find/red%20shoes", 303)),
        ("/app/x/y", {}, ("/index.html", 200)),
        ("/gone", {}, ("/", 410)),
        ("/away", {}, ("https://example.com/there", 308)),
    ],
)
def test_the_first_matching_rule_wins(path: str, query: dict[str, str], expected: tuple[str, int] | None) -> None:
    assert first(path, **query) == expected


def test_a_forced_rule_is_parsed() -> None:
    assert [rule.force for rule in parse_redirects(TEXT)[0]].count(True) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/a", "a source and a target"),
        ("a /b", "a path must begin with /"),
        ("/a/*/b /c", "only at the end"),
        ("/a* /c", "only at the end"),
        ("/:a/:a /c", "only once"),
        ("/x:y-z /c", ""),
        ("/:9 /c", "whole segment"),
        ("/:splat/* /c", "reserved for the * at the end"),
        ("/a /b 418", "the status 418"),
        ("/a b", "must be a path"),
        ("/a //evil.example", "must be a path"),
        ("/a /\\evil.example", "must be a path"),
        ("/a javascript:alert(1)", "must be a path"),
        ("/a https://example.com/b 200", "proxying to another host"),
        ("https://a.example/b /c", "for a whole domain"),
        ("/a /b 302 Country=de", "the condition Country is not supported"),
        ("/a /b 302 Role=admin", "the condition Role is not supported"),
        ("/a /b 200 extra", "'extra' is not valid"),
    ],
)
def test_an_invalid_redirect_is_reported_with_its_line(line: str, message: str) -> None:
    rules, problems = parse_redirects(f"/fine /there\n\n{line}\n")
    if not message:
        assert (len(rules), problems) == (2, [])
        return
    assert rules == [Redirect("/fine", "/there")]
    assert problems[0].message.startswith("_redirects line 3: ")
    assert message in problems[0].message


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200), st.text(max_size=50))
def test_any_text_is_rules_or_problems_and_never_splits_a_header(text: str, path: str) -> None:
    rules, _ = parse_redirects(text)
    for rule in rules:
        target = rule.applies(f"/{path}", {"q": path})
        if target is not None:
            assert target.isprintable()
            assert not set("\r\n") & set(target)
            assert target.startswith(("/", "http"))
            assert not target.startswith("//")


HEADERS = """
# for all
/*
  X-Frame-Options: DENY
  Cache-Control: no-cache
/assets/*
  Cache-Control: public, max-age=31536000
  Link: </a.css>; rel=preload
  Link: </b.css>; rel=preload
/page/:name
  X-Page: yes
"""


def test_headers_of_all_matching_paths_apply_and_the_last_wins() -> None:
    rules, problems = parse_headers(HEADERS)
    assert problems == []
    assert headers_for(to_json(rules), "/") == {"x-frame-options": "DENY", "cache-control": "no-cache"}
    assert headers_for(to_json(rules), "/assets/a.js") == {
        "x-frame-options": "DENY", "cache-control": "public, max-age=31536000",
        "link": "</a.css>; rel=preload, </b.css>; rel=preload",
    }  # fmt: skip
    assert headers_for(to_json(rules), "/page/a")["x-page"] == "yes"
    assert "x-page" not in headers_for(to_json(rules), "/page/a/b")


@pytest.mark.parametrize(
    ("text", "number", "message"),
    [
        ("  X: y", 1, "follow the path"),
        ("/*\n  no header", 2, "is not a header"),
        ("/*\n  Näme: x", 2, "is not a header"),
        ("/*\n  X: ü", 2, "is not a header"),
        ("/*\n  X: a\x00b", 2, "is not a header"),
        ("/*\n  Set-Cookie: a=b", 2, "set by the server"),
        ("/*\n  Content-Length: 5", 2, "set by the server"),
        ("/*\n  Strict-Transport-Security: max-age=1", 2, "set by the server"),
        ("/*\n  Basic-Auth: a:b", 2, "Basic-Auth is not supported"),
        ("https://a.example/*\n  X: y", 1, "for a whole domain"),
        ("a/*\n  X: y", 1, "a path must begin with /"),
    ],
)
def test_an_invalid_header_is_reported_with_its_line(text: str, number: int, message: str) -> None:
    _, problems = parse_headers(text)
    assert problems[0].message.startswith(f"_headers line {number}: ")
    assert message in problems[0].message


def test_the_number_of_rules_is_limited() -> None:
    for most, line, parse in (
        (redirects.MOST_RULES, "/a /b\n", redirects.parse_redirects), (headers.MOST_RULES, "/*\n  X: y\n", headers.parse_headers),
    ):  # fmt: skip
        rules, problems = parse(line * most)
        assert (len(rules), problems) == (most, [])
        assert [f"has more than {most}" in each.message for each in parse(line * (most + 1))[1]] == [True]
