"""What edges read of a request."""

import pytest
from quart import Quart

from appliance.core.errors import InvalidRequest
from appliance.web import Request
from tests.web.scopes import request_to


@pytest.mark.parametrize(
    ("scheme", "host"),
    [("https", "gos.example.com"), ("https", "10.0.0.5:8443"), ("http", "localhost:8080"), ("http", "demo.localhost:8080")],
)
def test_cookies_work_over_https_and_on_localhost(scheme: str, host: str) -> None:
    assert request_to(host, scheme=scheme).can_hold_cookies


@pytest.mark.parametrize("host", ["gos.example.com", "10.0.0.5:8080", "localhost.example.com", "notlocalhost"])
def test_cookies_do_not_work_over_plain_http_elsewhere(host: str) -> None:
    assert not request_to(host).can_hold_cookies


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("http", "acme.localhost:8080", "http://acme.localhost:8080"),
        ("http", "acme.localhost:80", "http://acme.localhost"),
        ("https", "acme.example.com:443", "https://acme.example.com"),
        ("https", "acme.example.com:80", "https://acme.example.com:80"),
    ],
)
def test_an_origin_is_what_a_browser_sends(scheme: str, host: str, origin: str) -> None:
    assert request_to(host, scheme=scheme).origin == origin


def test_of_a_repeated_cookie_the_first_counts_and_of_a_header_the_last() -> None:
    headers = [(b"cookie", b'a=1; b="2"; c'), (b"cookie", b"a=3; d="), (b"X-One", b"1"), (b"x-one", b"2")]
    request = request_to("acme.localhost", headers=headers)
    assert request.cookies == {"a": "1", "b": "2", "d": ""}
    assert request.headers["cookie"] == 'a=1; b="2"; c; a=3; d='
    assert request.headers["x-one"] == "2"


@pytest.mark.parametrize("query", [b"", b"a=1&a=2&b", b"a=%ff%C3%A4+x&%ff=1", b"a=%00;b=1", b"&&=1"])
async def test_a_query_string_is_read_as_by_quart(query: bytes) -> None:
    async with Quart(__name__).test_request_context(f"/?{query.decode()}") as context:
        expected = {name: context.request.args.getlist(name) for name in context.request.args}
    assert request_to("acme.localhost", query_string=query).args == expected


@pytest.mark.parametrize(("announced", "length"), [(b"12", 12), (b"", 0), (b"\xb2", 0), (b"-1", 0), (b"x", 0)])
def test_a_length_that_is_no_number_is_ignored(announced: bytes, length: int) -> None:
    assert request_to("acme.localhost", headers=[(b"content-length", announced)]).content_length == length


async def test_a_body_that_ends_early_is_refused() -> None:
    messages: list[dict[str, object]] = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"a", "more_body": True}]

    async def receive() -> dict[str, object]:
        return messages.pop()

    pieces = Request.of(request_to("acme.localhost").scope, receive).pieces
    assert await anext(pieces) == b"a"
    with pytest.raises(InvalidRequest, match="the client disconnected"):
        await anext(pieces)
