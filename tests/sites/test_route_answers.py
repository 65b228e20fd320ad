"""What a process may set with `$response`, header by header, and what is refused."""

import json
from typing import Any

import pytest

from appliance.core.errors import ProcessFailed
from appliance.sites.webapps.route_answers import Reply, success, to_error_reply, visible_output


def reply_with(**response: Any) -> Reply:
    return success({"$response": response})


def headers_of(reply: Reply) -> dict[str, str]:
    """The sent headers, none of them twice."""
    sent = [(name.decode(), value.decode()) for name, value in reply.encoded()]
    assert len(dict(sent)) == len(sent)
    return dict(sent)


@pytest.mark.parametrize(
    "name",
    [
        "Set-Cookie", "set-cookie2", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Clear-Site-Data",
        "Content-Encoding", "Content-Length", "Content-Security-Policy", "Connection", "Host", "Link", "Refresh", "Server",
        "Service-Worker-Allowed", "Strict-Transport-Security", "Transfer-Encoding", "Vary", "WWW-Authenticate", "ETag",
        "X-Content-Type-Options", "X-Frame-Options", "X-Robots-Tag", "X-Request-Id", "X-Forwarded-For", "X-Forwarded-Host",
        "X-Accel-Redirect", "X-", "x-a b", "x-a:", "x-ä", "x-a\r\nset-cookie", "", "location ", "\u212aeep-alive",
    ],
)  # fmt: skip
def test_headers_beyond_the_response_are_refused(name: str) -> None:
    with pytest.raises(ProcessFailed, match="cannot set the header"):
        reply_with(headers={name: "x"})


@pytest.mark.parametrize(
    "value", ["a\r\nSet-Cookie: b=c", "a\nb", "a\rb", "a\0b", "\x7f", "\t", "é", "x" * 2001, 1, None, ["a"], {"a": "b"}, True]
)
@pytest.mark.parametrize("name", ["X-Shop", "Content-Type", "Cache-Control"])
def test_a_header_value_is_one_line_of_plain_text(name: str, value: Any) -> None:
    with pytest.raises(ProcessFailed, match="cannot set the header"):
        reply_with(headers={name: value})


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "data:text/html,x", "evil.example", "",
        "ftp://evil.example", " /a", "/a b", "https:evil.example", "?a", "/" + "a" * 2000,
    ],
)  # fmt: skip
def test_a_location_is_a_path_or_an_http_url(place: str) -> None:
    with pytest.raises(ProcessFailed):
        reply_with(status=303, headers={"Location": place})


@pytest.mark.parametrize("place", ["/", "/thanks?order=1#top", "https://pay.example/x", "http://pay.example"])
def test_a_valid_location_is_sent(place: str) -> None:
    assert headers_of(reply_with(status=303, headers={"LOCATION": place}))["location"] == place


@pytest.mark.parametrize("status", [199, 100, 600, 0, -200, 200.5, float("nan"), float("inf"), True, "200", None, [200]])
def test_a_status_must_be_valid(status: Any) -> None:
    with pytest.raises(ProcessFailed, match="status"):
        reply_with(status=status)


def test_every_language_can_set_a_status() -> None:
    assert [reply_with(status=status).status for status in (200, 201.0, 404, 599)] == [200, 201, 404, 599]
    assert isinstance(reply_with(status=201.0).status, int)
    assert reply_with().status == 200


@pytest.mark.parametrize(
    "response", [None, "a", [], {"status": 200, "cookies": {}}, {"header": {}}, {"headers": ["a"]}, {"headers": "a: b"}]
)
def test_an_invalid_response_is_not_sent(response: Any) -> None:
    with pytest.raises(ProcessFailed):
        success({"$response": response})


def test_a_body_is_sent_with_its_type() -> None:
    text = reply_with(body="<script>é")
    assert (text.body, headers_of(text)["content-type"]) == ("<script>é".encode(), "text/plain; charset=utf-8")
    for value in ({"a": "é"}, ["a"], 0, False, 1.5):
        reply = reply_with(body=value)
        headers = headers_of(reply)
        assert (json.loads(reply.body), headers["content-type"]) == (value, "application/json")
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    own = reply_with(body={"a": 1}, headers={"Content-Type": "application/ld+json", "X-Shop": "1"})
    assert (headers_of(own)["content-type"], headers_of(own)["x-shop"]) == ("application/ld+json", "1")
    assert reply_with().body == reply_with(body=None).body == b""
    assert [reply_with(status=status, body="x").body for status in (204, 304)] == [b"", b""]


def test_default_headers_are_added() -> None:
    replies = (reply_with(body="a"), reply_with(body={}), reply_with(status=204), success({"a": 1}))
    for reply in (*replies, to_error_reply(ProcessFailed("x"), "req_1")):
        headers = headers_of(reply)
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "SAMEORIGIN")
        assert (headers["x-robots-tag"], headers["cache-control"]) == ("noindex", "no-store")
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "strict-origin-when-cross-origin"
    cached = reply_with(body="a", headers={"Cache-Control": "private, max-age=60"})
    assert headers_of(cached)["cache-control"] == "private, max-age=60"


def test_a_follower_sees_only_the_body() -> None:
    assert visible_output({"$response": {"status": 201, "headers": {"X-Shop": "1"}, "body": {"a": 1}}}) == {"a": 1}
    assert visible_output({"a": 1}) == {"a": 1}
