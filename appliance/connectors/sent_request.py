"""Normalizes the HTTP request an action sends, so that rules compare method, host, URL and body however they are written."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx

from appliance.connectors.contract import ConnectorError, HttpRequest
from appliance.connectors.egress import build_request
from appliance.connectors.network.host_names import normal_host

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_FORM = "application/x-www-form-urlencoded"
_OVERRIDES = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})
_PARAMETER = "_method"
_METHODS = SAFE_METHODS | {"CONNECT", "DELETE", "PATCH", "POST", "PUT"}
_MOST_OVERRIDES = 10  # cap on override values that are not HTTP methods, because a body may contain any number of them
_MOST_BODY = 4 << 20
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class SentRequest:
    """The normalized first request of an action; empty and `is_opaque` when it is not known in advance.

    `methods` are the request's own method and those that override headers or parameters request; `urls` are the forms in which
    a condition may write its URL; `bodies` are all readings of its body; `is_opaque` means that the body may have content
    beyond these readings.
    """

    methods: tuple[str, ...] = ()
    host: str = ""
    urls: tuple[str, ...] = ()
    query: Mapping[str, Any] | None = None
    bodies: tuple[Any, ...] = ()
    text: str = ""
    is_opaque: bool = True

    @property
    def may_write(self) -> bool:
        """Whether any of its methods may change something."""
        return any(method not in SAFE_METHODS for method in self.methods)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """The names that rules use for its methods."""
        return tuple(method.lower() for method in self.methods)

    def inputs(self, action_input: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the inputs that conditions are evaluated on: one for each combination of body, method and URL."""
        query = {**_texts(action_input.get("query")), **(self.query or {})}
        inputs = []
        for body in self.bodies or (None,):
            read = _members(body, self.text)
            for method in self.methods or ("",):
                common = {**action_input, **read, "query": query, **({"method": method} if method else {})}
                inputs += [{**common, "url": url} for url in self.urls] or [common]
        return inputs

    def bodies_of(self, action_input: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the input with each reading of its body and its original URL; a rule that allows must match all of them."""
        return [{**action_input, **_members(body, self.text)} for body in self.bodies]


UNKNOWN = SentRequest()


def read_request(request: HttpRequest, base_url: str = "") -> SentRequest:
    """Normalize a request; UNKNOWN when it cannot be sent."""
    try:
        built = build_request(request)
    except ConnectorError:
        return UNKNOWN
    url = built.url
    query = _pairs(parse_qsl(url.query.decode("ascii", "replace"), keep_blank_values=True))
    bodies, is_opaque = _read_body(built)
    return SentRequest(
        methods=tuple(dict.fromkeys([built.method, *_overrides(built, query, bodies)])),
        host=normal_host(f"{url.host if ':' not in url.host else f'[{url.host}]'}:{url.port or _PORTS[url.scheme]}"),
        urls=tuple(_addresses(url, base_url)), query=query, bodies=tuple(bodies),
        text=built.content[:_MOST_BODY].decode("utf-8", "replace"), is_opaque=is_opaque,
    )  # fmt: skip


def to_nfc(value: Any) -> Any:
    """Return JSON with all strings in composed form (NFC), so that an accented letter has one spelling.

    Two members whose names become equal are merged into a list of both values, which no comparison matches.
    """
    if "\\" not in ascii(value):  # most values are plain ASCII, which this check detects ten times as fast
        return value
    return _composed(value)


def _composed(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, Mapping):
        return _pairs((_composed(name), _composed(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return [_composed(inner) for inner in value]
    return value


def _pairs(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; the values of a repeated name become a list."""
    values_by_name: dict[str, list[Any]] = {}
    for name, value in pairs:
        values_by_name.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in values_by_name.items()}


def _members(body: Any, text: str) -> dict[str, Any]:
    if body is None:
        return {}
    members = body if isinstance(body, Mapping) else {}
    parts = [{"name": name, "value": value} for name, value in members.items()]
    return {"json": body, "form": body, "body": body, "multipart": parts, "raw": {"text": text}}


def _texts(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _overrides(built: httpx.Request, query: Mapping[str, Any], bodies: list[Any]) -> Iterable[str]:
    """Return the methods that frameworks would substitute because of an override header or parameter."""
    raw_values: list[Any] = [value for name, value in built.headers.multi_items() if name.lower().replace("_", "-") in _OVERRIDES]
    for members in (query, *(body for body in bodies if isinstance(body, Mapping))):
        raw_values += [value for name, value in members.items() if name.lower() == _PARAMETER]
    values = [each for value in raw_values for each in (value if isinstance(value, list) else [value])]
    methods = {each.strip().upper() for each in values if isinstance(each, str) and each.strip().isalpha()}
    return [*sorted(methods & _METHODS), *sorted(methods - _METHODS)[:_MOST_OVERRIDES]]


def _addresses(url: httpx.URL, base_url: str) -> Iterable[str]:
    """Yield the forms in which conditions may write the URL: absolute, as a path, and relative to the integration's base URL."""
    path = _plain_path(url.path)
    query = f"?{url.query.decode('ascii', 'replace')}" if url.query else ""
    base = _plain_path(urlsplit(base_url).path).rstrip("/")
    paths = [path]
    if base and (path == base or path.startswith(f"{base}/")):
        paths.append(path[len(base) :] or "/")
    yield str(url)
    for each in paths:
        yield from (each + query, (each + query).lstrip("/"))


def _plain_path(path: str) -> str:
    """Percent-decode a path and remove empty and dot segments."""
    segments: list[str] = []
    for segment in unquote(path).split("/"):
        if segment == "..":
            segments = segments[:-1]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/" + "/".join(segments) + ("/" if path.endswith("/") and segments else "")


def _read_body(built: httpx.Request) -> tuple[list[Any], bool]:
    """Return every reading of the body by the receiver, and whether other readings are possible."""
    content = built.content
    if not content:
        return [], False
    types = built.headers.get_list("content-type")
    if len(content) > _MOST_BODY or len(types) > 1 or "content-encoding" in built.headers:
        return [], True
    head = Message()
    head["Content-Type"] = types[0] if types else "application/octet-stream"
    kind = head.get_content_type()
    readings = [each for each in (_read_json(content),) if each is not None]
    if kind == _FORM:
        return [*readings, to_nfc(_pairs(parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True)))], False
    if kind == "multipart/form-data":
        parts = _read_multipart(types[0], content)
        return ([], True) if parts is None else ([parts[0]], parts[1])
    is_json = kind == "application/json" or kind.endswith("+json")
    return readings, not readings or not (is_json or kind in ("text/plain", "application/octet-stream"))


def _read_json(content: bytes) -> Any:
    try:
        read = json.loads(content, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return None
    return to_nfc(read) if isinstance(read, dict | list) else None


def _read_multipart(content_type: str, content: bytes) -> tuple[Any, bool] | None:
    """Return the fields of a multipart form, and whether it contains files or parts whose content cannot be evaluated."""
    if re.search(r"[\r\n]", content_type):
        return None
    parsed = BytesParser().parsebytes(b"Content-Type: " + content_type.encode("utf-8", "replace") + b"\r\n\r\n" + content)
    if not parsed.is_multipart():
        return None
    pairs: list[tuple[str, Any]] = []
    is_opaque = False
    for part in parsed.get_payload():
        name, raw = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)  # type: ignore[union-attr]
        is_file = part.get_filename() is not None or part.get_content_type() != "text/plain"  # type: ignore[union-attr]
        is_opaque = is_opaque or is_file or not isinstance(raw, bytes)
        pairs.append((str(name), raw.decode("utf-8", "replace") if isinstance(raw, bytes) else None))
    return to_nfc(_pairs(pairs)), is_opaque
