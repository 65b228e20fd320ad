"""Downloads: conditional requests and ranges (RFC 9110, sections 13 and 14), sent a piece at a time."""

import re
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime

from werkzeug.datastructures import ETags
from werkzeug.http import http_date, parse_date, parse_etags, parse_if_range_header

from appliance.core.errors import RangeNotSatisfiable, VersionConflict
from appliance.core.sentences import Sentence
from appliance.documents import Content, disposition
from appliance.web import Response, read_pieces

from .routing import Answer, Pieces

CACHE = "private, no-cache"
CONDITIONAL = {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"}
_ONE_RANGE = re.compile(r"bytes=\s*(?=\d|-\d)(\d{0,18})-(\d{0,18})\s*", re.ASCII)


def stream_pieces(pieces: Pieces, status: int, headers: Mapping[str, str], threads: Executor) -> Response:
    """A response that sends the pieces as they are read, each in a thread, at the pace of the client."""
    with_length = {**headers, "Content-Length": str(pieces.length)}
    return Response(status, headers=with_length, pieces=read_pieces(pieces.source, threads))


@dataclass(frozen=True)
class ContentRequest:
    """The conditional and range headers of a request; header names are in lower case."""

    headers: Mapping[str, str]

    def etags(self, name: str) -> ETags | None:
        return parse_etags(self.headers[name]) if name in self.headers else None

    def since(self, name: str) -> datetime | None:
        return parse_date(self.headers.get(name))


def answer_content(content: Content, headers: Mapping[str, str], *, may_redirect: bool = False) -> Answer:
    """Answer a download with 200, 206 or 304; raises VersionConflict or RangeNotSatisfiable.

    With `may_redirect`, 302 to the bucket where that is allowed; but not for conditional requests, because the bucket has other
    ETags and dates.
    The content is sent as an attachment with a sandbox that allows nothing, so that no browser runs or shows it.
    """
    if may_redirect and not CONDITIONAL & headers.keys() and (address := content.address()) is not None:
        return Answer(b"", 302, {"Location": address, "Cache-Control": "no-store", "Content-Type": "text/plain"})
    request, modified = ContentRequest(headers), _whole_seconds(content.created_at)
    response_headers = {
        "ETag": f'"{content.sha256}"', "Last-Modified": http_date(modified), "Cache-Control": CACHE, "Accept-Ranges": "bytes",
    }  # fmt: skip
    _refuse_outdated(request, content.sha256, modified)
    if _is_unmodified(request, content.sha256, modified):
        return Answer(b"", 304, response_headers)
    response_headers |= {
        "Content-Type": content.media_type, "Content-Disposition": disposition(content.name, "attachment"),
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }  # fmt: skip
    byte_range = _range(request, content, modified)
    if byte_range is None:
        return Answer(Pieces(content.pieces(0, content.size), content.size), 200, response_headers)
    start, end = byte_range
    response_headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
    return Answer(Pieces(content.pieces(start, end), end - start), 206, response_headers)


def _whole_seconds(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _refuse_outdated(request: ContentRequest, etag: str, modified: datetime) -> None:
    etags, since = request.etags("if-match"), request.since("if-unmodified-since")
    by_date = since is not None and modified > since
    if by_date if etags is None else not etags.contains(etag):
        raise VersionConflict("the content has changed since; read the document again")


def _is_unmodified(request: ContentRequest, etag: str, modified: datetime) -> bool:
    etags, since = request.etags("if-none-match"), request.since("if-modified-since")
    if etags is not None:
        return etags.contains_weak(etag)
    return since is not None and modified <= since


def _range(request: ContentRequest, content: Content, modified: datetime) -> tuple[int, int] | None:
    """The requested range of bytes; None for the whole content, which also answers several ranges and a range of other content."""
    match = _ONE_RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or not _has_same_content(request, content.sha256, modified):
        return None
    first, last = (int(part) if part else None for part in match.groups())
    if first is not None and last is not None and last < first:
        return None
    if first is None:
        first, last = max(0, content.size - (last or 0)), None
    if first >= content.size:
        raise RangeNotSatisfiable(
            Sentence("the content has %(size)s bytes, none of them in that range", size=content.size),
            headers={"Content-Range": f"bytes */{content.size}"},
        )
    return first, content.size if last is None else min(last + 1, content.size)


def _has_same_content(request: ContentRequest, etag: str, modified: datetime) -> bool:
    if "if-range" not in request.headers:
        return True
    condition = parse_if_range_header(request.headers["if-range"])
    if condition.date is not None:
        return condition.date == modified
    return condition.etag == etag and not request.headers["if-range"].strip().startswith("W/")
