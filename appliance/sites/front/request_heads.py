"""Validates the head of a request, and determines the host and path it addresses (RFC 9112)."""

import re
from collections.abc import Iterable

from appliance.core.errors import HeadersTooLarge, InvalidRequest, NotSupported
from appliance.core.sentences import Sentence

Header = tuple[bytes, bytes]

MOST_HEADERS, MOST_HEAD_BYTES = 200, 32 << 10
_ABSOLUTE = re.compile(rb"https?://([^/?#@\\]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)
_HEAD_END = re.compile(rb"\n\r?\n")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_PATH = re.compile(rb"/[!-~]*")


def check_lines(received: bytes) -> None:
    """InvalidRequest when a line of the head ends in a bare line feed, because another server may see a different end;
    HeadersTooLarge when the head, which may be complete, is longer than MOST_HEAD_BYTES.

    `received` is the request as received so far; the body after the first empty line is not checked.
    """
    match = _HEAD_END.search(received)
    end = match.end() if match else len(received)
    if _BARE_LF.search(received, 0, end):
        raise InvalidRequest("a header line ends in a bare line feed; lines must end in CR LF")
    if end > MOST_HEAD_BYTES:
        raise HeadersTooLarge("the head of the request is too large")


def check_head(method: bytes, version: bytes, headers: Iterable[Header]) -> None:
    """Refuse requests that a proxy could interpret differently, and those that are not supported.

    InvalidRequest, NotSupported or HeadersTooLarge; each of them closes the connection.
    """
    if version not in (b"1.0", b"1.1"):
        raise InvalidRequest("this is not HTTP/1.1; HTTP/2 is available over TLS only, negotiated by ALPN")
    count, has_length, has_coding = 0, False, False
    upgrade = connection = b""
    for name, value in headers:
        count += 1
        if name == b"content-length":
            has_length = True
        elif name == b"transfer-encoding":
            has_coding = True
        elif name == b"upgrade":
            upgrade += b"," + value
        elif name == b"connection":
            connection += b"," + value
    check_count(count)
    if has_coding and (has_length or version == b"1.0"):
        raise InvalidRequest(
            "the request has Transfer-Encoding together with Content-Length or HTTP/1.0, so its end is ambiguous; "
            "send one of the two, with HTTP/1.1"
        )
    check_method(method)
    if upgrade and b"websocket" in _tokens(upgrade) and b"upgrade" in _tokens(connection):
        raise NotSupported("WebSockets are not supported; use server-sent events")


def check_count(count: int) -> None:
    """HeadersTooLarge for more headers than any client needs."""
    if count > MOST_HEADERS:
        raise HeadersTooLarge(
            Sentence("the request has %(count)s headers; the maximum is %(most_headers)s", count=count, most_headers=MOST_HEADERS)
        )


def check_method(method: bytes) -> None:
    """NotSupported for CONNECT, which includes WebSockets over HTTP/2."""
    if method.upper() == b"CONNECT":
        raise NotSupported("CONNECT is not supported; this server is not a proxy and has no WebSockets")


def check_path(target: bytes) -> None:
    """InvalidRequest unless the target is a valid path with an optional query."""
    if target != b"*" and (not _PATH.fullmatch(target) or b"#" in target):
        raise InvalidRequest("the request target must be a path that begins with a slash and has no fragment")


def split_target(target: bytes) -> tuple[bytes, bytes | None]:
    """The path with its query, and the authority of an absolute target (`GET http://host/path`), which takes precedence over
    the Host header (RFC 9112 § 3.2.2). InvalidRequest for any other form."""
    match = None if target.startswith(b"/") else _ABSOLUTE.fullmatch(target)
    if match is None:
        check_path(target)
        return target, None
    rest = match[2] or b"/"
    return rest if rest.startswith(b"/") else b"/" + rest, match[1]


def with_host(headers: Iterable[Header], authority: bytes) -> list[Header]:
    """The headers with this host only."""
    return [(b"host", authority), *((name, value) for name, value in headers if name != b"host")]


def _tokens(value: bytes) -> list[bytes]:
    return [token.partition(b"/")[0].strip().lower() for token in value.split(b",")]
