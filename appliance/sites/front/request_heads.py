"""Whether the head of a request is one that this server takes, and which host and path it means (RFC 9112)."""

import re
from collections.abc import Iterable

from appliance.core.errors import HeadersTooLarge, InvalidRequest, NotSupported
from appliance.core.sentences import Sentence

Header = tuple[bytes, bytes]

MOST_HEADERS = 200
_ABSOLUTE = re.compile(rb"https?://([^/?#@\\]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)
_HEAD_END = re.compile(rb"\n\r?\n")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_PATH = re.compile(rb"/[!-~]*")


def check_lines(received: bytes) -> None:
    """InvalidRequest when a line of the head ends in a line feed alone: to another server it may end elsewhere.

    `received` is what has come of the request so far; its body, behind the first empty line, may say what it likes.
    """
    end = _HEAD_END.search(received)
    if _BARE_LF.search(received, 0, end.end() if end else len(received)):
        raise InvalidRequest("a line of the request's head ends in a line feed alone; lines end in CR LF")


def check_head(method: bytes, version: bytes, headers: Iterable[Header]) -> None:
    """Refuse what could mean another request to a proxy than to us, and what is not served at all.

    InvalidRequest, NotSupported and HeadersTooLarge; the connection ends with each of them.
    """
    if version not in (b"1.0", b"1.1"):
        raise InvalidRequest("this is not HTTP/1.1; HTTP/2 is spoken over TLS only, where the client asks for it by ALPN")
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
            "the request has Transfer-Encoding together with Content-Length or HTTP/1.0, so where it ends is not certain; "
            "send one of the two, with HTTP/1.1"
        )
    check_method(method)
    if upgrade and b"websocket" in _tokens(upgrade) and b"upgrade" in _tokens(connection):
        raise NotSupported("WebSockets are not served here; for events read a stream of server-sent events")


def check_count(count: int) -> None:
    """HeadersTooLarge for more headers than any client needs."""
    if count > MOST_HEADERS:
        raise HeadersTooLarge(
            Sentence("the request has %(count)s headers; the maximum is %(most_headers)s", count=count, most_headers=MOST_HEADERS)
        )


def check_method(method: bytes) -> None:
    """NotSupported for a tunnel, of which a WebSocket over HTTP/2 is one."""
    if method.upper() == b"CONNECT":
        raise NotSupported("CONNECT is not served here; this is no proxy, and WebSockets are not served either")


def check_path(target: bytes) -> None:
    """InvalidRequest unless it is a path with its query, as it may stand in a request."""
    if target != b"*" and (not _PATH.fullmatch(target) or b"#" in target):
        raise InvalidRequest("the target of the request is no path; it begins with a slash and has no fragment")


def split_target(target: bytes) -> tuple[bytes, bytes | None]:
    """Path and query, and the authority that an absolute target names (`GET http://host/path`): it counts, whatever the Host
    header says (RFC 9112 § 3.2.2).  InvalidRequest for every other form."""
    match = None if target.startswith(b"/") else _ABSOLUTE.fullmatch(target)
    if match is None:
        check_path(target)
        return target, None
    rest = match[2] or b"/"
    return rest if rest.startswith(b"/") else b"/" + rest, match[1]


def with_host(headers: Iterable[Header], authority: bytes) -> list[Header]:
    """The headers with this host and no other."""
    return [(b"host", authority), *((name, value) for name, value in headers if name != b"host")]


def _tokens(value: bytes) -> list[bytes]:
    return [token.partition(b"/")[0].strip().lower() for token in value.split(b",")]
