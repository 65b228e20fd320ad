"""A file of a WebApp as answers: coding, conditions and ranges by RFC 9110 (sections 8.8, 12.5.3, 13 and 14); pure."""

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
def accepted(header: str) -> frozenset[str]:
    """The codings that an Accept-Encoding header takes, `*` among them."""
    found = (_CODING.fullmatch(part) for part in header.lower().split(","))
    return frozenset(each[1] for each in found if each and _weight(each[2]) > 0)


def _weight(text: str | None) -> float:
    try:
        return 1.0 if text is None else float(text)
    except ValueError:
        return 0.0


def media_type(path: str) -> str:
    found: str = _TYPES.get_type(path)
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


@dataclass(frozen=True)
class Chosen:
    """One form of a file: the blob, its size, and the headers of a 200 without its length."""

    sha256: str
    size: int
    etag: bytes
    headers: Headers


@dataclass(frozen=True)
class Plan:
    """The answer: status, headers, and which bytes of which blob; no bytes when the answer has no body."""

    status: int
    headers: Headers
    sha256: str = ""
    start: int = 0
    end: int = 0
    size: int = 0


class Representations:
    """The forms of one file, with the headers of the version."""

    def __init__(self, path: str, file: ServedFile, rules: Mapping[str, str]) -> None:
        own = {
            "content-type": media_type(path), "cache-control": FOREVER if is_fingerprinted(path) else CHECKED,
            "referrer-policy": "strict-origin-when-cross-origin", "x-frame-options": "SAMEORIGIN", **rules,
            "x-content-type-options": "nosniff", "accept-ranges": "bytes",
        }  # fmt: skip
        if "frame-ancestors" in rules.get("content-security-policy", ""):
            own.pop("x-frame-options", None)
        if len(file.forms) > 1:
            own["vary"] = "accept-encoding"
        forms = sorted((size, encoding, sha256) for encoding, (sha256, size) in file.forms.items())
        self._forms = {encoding: _chosen(file.sha256, encoding, sha256, size, own) for size, encoding, sha256 in forms}
        self._identity = self._forms["identity"]

    def plan(self, method: str, status: int, headers: Mapping[bytes, bytes]) -> Plan:
        """The answer to a GET or HEAD; `status` is that of the whole file (404 for an error page)."""
        ranged = b"range" in headers and method == "GET" and status == 200
        chosen = self._identity if ranged else self._choose(headers.get(b"accept-encoding", b"").decode("latin1"))
        if status == 200:
            if b"if-match" in headers and not _lists(headers[b"if-match"], chosen.etag, weak=False):
                return Plan(412, [(b"content-length", b"0")])
            if b"if-none-match" in headers and _lists(headers[b"if-none-match"], chosen.etag, weak=True):
                kept = [header for header in chosen.headers if header[0] != b"content-type"]
                return Plan(304, kept)
            if ranged and headers.get(b"if-range", chosen.etag).strip() == chosen.etag:
                part = _parse_range(headers[b"range"], chosen.size)
                if part is not None:
                    return _part(chosen, *part)
        length = (b"content-length", str(chosen.size).encode())
        return Plan(status, [*chosen.headers, length], chosen.sha256, 0, chosen.size, chosen.size)

    def _choose(self, accept_encoding: str) -> Chosen:
        if not accept_encoding:
            return self._identity
        takes = accepted(accept_encoding)
        return next((form for encoding, form in self._forms.items() if encoding in takes or "*" in takes), self._identity)


def _chosen(content: str, encoding: str, sha256: str, size: int, own: Mapping[str, str]) -> Chosen:
    etag = f'"{content}"' if encoding == "identity" else f'"{content}-{encoding}"'
    told = {**own, "etag": etag} | ({} if encoding == "identity" else {"content-encoding": encoding})
    return Chosen(sha256, size, etag.encode(), [(name.encode(), value.encode("latin1")) for name, value in told.items()])


def _lists(header: bytes, etag: bytes, *, weak: bool) -> bool:
    if header.strip() == b"*":
        return True
    return any(found[1] == etag and (weak or not found[0].startswith(b"W/")) for found in _TAG.finditer(header))


def _parse_range(header: bytes, size: int) -> tuple[int, int] | None:
    """(start, end) of the one range that is asked for, start at or behind the size when there is nothing of it; None for what
    is served whole: several ranges, and what is none."""
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        return None
    first, last = (int(part) if part else None for part in found.groups())
    if first is None:
        return (max(0, size - (last or 0)), size) if last else (size, size)
    if last is not None and last < first:
        return None
    return first, size if last is None else min(last + 1, size)


def _part(chosen: Chosen, start: int, end: int) -> Plan:
    if start >= chosen.size:
        return Plan(416, [(b"content-range", f"bytes */{chosen.size}".encode()), (b"content-length", b"0")])
    told = [(b"content-range", f"bytes {start}-{end - 1}/{chosen.size}".encode()), (b"content-length", str(end - start).encode())]
    return Plan(206, [*chosen.headers, *told], chosen.sha256, start, end, chosen.size)
