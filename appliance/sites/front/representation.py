"""The representations of a file: encoding, conditional requests and ranges by RFC 9110 (sections 8.8, 12.5.3, 13 and 14). Pure
functions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from whitenoise.media_types import MediaTypes

from appliance.sites.webapps.fingerprints import is_fingerprinted
from appliance.webapps import ServedFile

Headers = list[tuple[bytes, bytes]]
FOREVER, CHECKED = "public, max-age=31536000, immutable", "public, max-age=0, must-revalidate"
_TYPES = MediaTypes(
    extra_types={".webmanifest": "application/manifest+json", ".map": "application/json", ".py": "text/plain"}
)
_RANGE = re.compile(rb"bytes=\s*(?=\d|-\d)(\d{0,18})-(\d{0,18})\s*")
_CODING = re.compile(r"\s*([\w*-]+)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?", re.ASCII)
_TAG = re.compile(rb'(?:W/)?("[^"]*")')


@lru_cache(1024)
def parse_accept_encoding(header: str) -> frozenset[str]:
    """The codings that an Accept-Encoding header accepts, possibly including `*`."""
    matches = (_CODING.fullmatch(part) for part in header.lower().split(","))
    return frozenset(match[1] for match in matches if match and _weight(match[2]) > 0)


def _weight(text: str | None) -> float:
    try:
        return 1.0 if text is None else float(text)
    except ValueError:
        return 0.0


def media_type(path: str) -> str:
    kind: str = _TYPES.get_type(path)
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


@dataclass(frozen=True)
class Representation:
    """One encoding of a file: its blob and size, and the headers of a 200 response without the length."""

    sha256: str
    size: int
    etag: bytes
    headers: Headers


@dataclass(frozen=True)
class ResponsePlan:
    """A planned response: status, headers, and the byte range of a blob; empty when there is no body."""

    status: int
    headers: Headers
    sha256: str = ""
    start: int = 0
    end: int = 0
    size: int = 0


class Representations:
    """The encodings of one file, with the headers of its version."""

    def __init__(self, path: str, file: ServedFile, rules: Mapping[str, str]) -> None:
        headers = {
            "content-type": media_type(path), "cache-control": FOREVER if is_fingerprinted(path) else CHECKED,
            "referrer-policy": "strict-origin-when-cross-origin", "x-frame-options": "SAMEORIGIN", **rules,
            "x-content-type-options": "nosniff", "accept-ranges": "bytes",
        }  # fmt: skip
        if "frame-ancestors" in rules.get("content-security-policy", ""):
            headers.pop("x-frame-options", None)
        if len(file.forms) > 1:
            headers["vary"] = "accept-encoding"
        forms = sorted((size, encoding, sha256) for encoding, (sha256, size) in file.forms.items())
        self._forms = {encoding: _represent(file.sha256, encoding, sha256, size, headers) for size, encoding, sha256 in forms}
        self._identity = self._forms["identity"]

    def plan(self, method: str, status: int, headers: Mapping[bytes, bytes]) -> ResponsePlan:
        """Plan the response to a GET or HEAD; `status` applies to the complete file (404 for an error page)."""
        has_range = b"range" in headers and method == "GET" and status == 200
        chosen = self._identity if has_range else self._choose(headers.get(b"accept-encoding", b"").decode("latin1"))
        if status == 200:
            if b"if-match" in headers and not _matches_etag(headers[b"if-match"], chosen.etag, weak=False):
                return ResponsePlan(412, [(b"content-length", b"0")])
            if b"if-none-match" in headers and _matches_etag(headers[b"if-none-match"], chosen.etag, weak=True):
                remaining = [header for header in chosen.headers if header[0] != b"content-type"]
                return ResponsePlan(304, remaining)
            if has_range and headers.get(b"if-range", chosen.etag).strip() == chosen.etag:
                byte_range = _parse_range(headers[b"range"], chosen.size)
                if byte_range is not None:
                    return _partial_response(chosen, *byte_range)
        length = (b"content-length", str(chosen.size).encode())
        return ResponsePlan(status, [*chosen.headers, length], chosen.sha256, 0, chosen.size, chosen.size)

    def _choose(self, accept_encoding: str) -> Representation:
        if not accept_encoding:
            return self._identity
        codings = parse_accept_encoding(accept_encoding)
        return next((form for encoding, form in self._forms.items() if encoding in codings or "*" in codings), self._identity)


def _represent(content: str, encoding: str, sha256: str, size: int, base_headers: Mapping[str, str]) -> Representation:
    etag = f'"{content}"' if encoding == "identity" else f'"{content}-{encoding}"'
    headers = {**base_headers, "etag": etag} | ({} if encoding == "identity" else {"content-encoding": encoding})
    return Representation(sha256, size, etag.encode(), [(name.encode(), value.encode("latin1")) for name, value in headers.items()])


def _matches_etag(header: bytes, etag: bytes, *, weak: bool) -> bool:
    if header.strip() == b"*":
        return True
    return any(match[1] == etag and (weak or not match[0].startswith(b"W/")) for match in _TAG.finditer(header))


def _parse_range(header: bytes, size: int) -> tuple[int, int] | None:
    """Parse a single range to (start, end); start is at or beyond the size when it cannot be satisfied. None means the complete
    file: several ranges, or an invalid header."""
    match = _RANGE.fullmatch(header.strip())
    if match is None:
        return None
    first, last = (int(part) if part else None for part in match.groups())
    if first is None:
        return (max(0, size - (last or 0)), size) if last else (size, size)
    if last is not None and last < first:
        return None
    return first, size if last is None else min(last + 1, size)


def _partial_response(chosen: Representation, start: int, end: int) -> ResponsePlan:
    if start >= chosen.size:
        return ResponsePlan(416, [(b"content-range", f"bytes */{chosen.size}".encode()), (b"content-length", b"0")])
    content_range = f"bytes {start}-{end - 1}/{chosen.size}".encode()
    headers = [(b"content-range", content_range), (b"content-length", str(end - start).encode())]
    return ResponsePlan(206, [*chosen.headers, *headers], chosen.sha256, start, end, chosen.size)
