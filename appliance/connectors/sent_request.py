"""What an action sends over HTTP, in one form: method, host, address and what its body says, however the action spells them."""

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
_MOST_OVERRIDES = 10  # names that are no methods of HTTP, of which a body may hold as many as it likes
_MOST_BODY = 4 << 20
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class SentRequest:
    """The first request of an action; all of it empty, and `is_opaque`, where nobody can tell it beforehand.

    `methods` are the request's own and those that headers or parameters would have it taken for; `urls` the ways in which a
    condition may name its address; `bodies` every way to read its body; `is_opaque` says that there may be more in the body
    than these.
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
        """Whether any of its methods changes something."""
        return any(method not in SAFE_METHODS for method in self.methods)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """The names by which rules call its methods."""
        return tuple(method.lower() for method in self.methods)

    def inputs(self, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The input as conditions may look at it, one for each reading of body and address."""
        query = {**_texts(given.get("query")), **(self.query or {})}
        found = []
        for body in self.bodies or (None,):
            read = _members(body, self.text)
            for method in self.methods or ("",):
                common = {**given, **read, "query": query, **({"method": method} if method else {})}
                found += [{**common, "url": url} for url in self.urls] or [common]
        return found

    def bodies_of(self, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The input with each reading of its body, its address as it was given: what a rule that allows must hold for."""
        return [{**given, **_members(body, self.text)} for body in self.bodies]


UNKNOWN = SentRequest()


def read_request(request: HttpRequest, base_url: str = "") -> SentRequest:
    """The request in its one form; UNKNOWN when it cannot be sent."""
    try:
        built = build_request(request)
    except ConnectorError:
        return UNKNOWN
    url = built.url
    query = _pairs(parse_qsl(url.query.decode("ascii", "replace"), keep_blank_values=True))
    bodies, is_opaque = _read_body(built)
    return SentRequest(
        tuple(dict.fromkeys([built.method, *_overrides(built, query, bodies)])),
        normal_host(f"{url.host if ':' not in url.host else f'[{url.host}]'}:{url.port or _PORTS[url.scheme]}"),
        tuple(_addresses(url, base_url)), query, tuple(bodies), built.content[:_MOST_BODY].decode("utf-8", "replace"), is_opaque,
    )  # fmt: skip


def composed(value: Any) -> Any:
    """JSON whose texts are in the composed form (NFC), so that an accent has one spelling; of two members that become one,
    both values are kept, which no comparison takes for one of them."""
    if "\\" not in ascii(value):  # most are plain ASCII, which this says ten times as fast
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
    """An object; a member that is there twice has a list of its values."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _members(body: Any, text: str) -> dict[str, Any]:
    if body is None:
        return {}
    members = body if isinstance(body, Mapping) else {}
    parts = [{"name": name, "value": value} for name, value in members.items()]
    return {"json": body, "form": body, "body": body, "multipart": parts, "raw": {"text": text}}


def _texts(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _overrides(built: httpx.Request, query: Mapping[str, Any], bodies: list[Any]) -> Iterable[str]:
    """Methods for which frameworks take a request because of a header or a parameter."""
    named: list[Any] = [value for name, value in built.headers.multi_items() if name.lower().replace("_", "-") in _OVERRIDES]
    for members in (query, *(body for body in bodies if isinstance(body, Mapping))):
        named += [value for name, value in members.items() if name.lower() == _PARAMETER]
    values = [each for value in named for each in (value if isinstance(value, list) else [value])]
    methods = {each.strip().upper() for each in values if isinstance(each, str) and each.strip().isalpha()}
    return [*sorted(methods & _METHODS), *sorted(methods - _METHODS)[:_MOST_OVERRIDES]]


def _addresses(url: httpx.URL, base_url: str) -> Iterable[str]:
    """The address as conditions name it: whole, as a path, and below the integration's base address."""
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
    """Percent-decoded, without empty and dot segments."""
    segments: list[str] = []
    for segment in unquote(path).split("/"):
        if segment == "..":
            segments = segments[:-1]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/" + "/".join(segments) + ("/" if path.endswith("/") and segments else "")


def _read_body(built: httpx.Request) -> tuple[list[Any], bool]:
    """Every way in which the receiver may read the body, and whether it may read it in another."""
    content = built.content
    if not content:
        return [], False
    types = built.headers.get_list("content-type")
    if len(content) > _MOST_BODY or len(types) > 1 or "content-encoding" in built.headers:
        return [], True
    head = Message()
    head["Content-Type"] = types[0] if types else "application/octet-stream"
    kind = head.get_content_type()
    found = [each for each in (_read_json(content),) if each is not None]
    if kind == _FORM:
        return [*found, composed(_pairs(parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True)))], False
    if kind == "multipart/form-data":
        parts = _read_multipart(types[0], content)
        return ([], True) if parts is None else ([parts[0]], parts[1])
    is_json = kind == "application/json" or kind.endswith("+json")
    return found, not found or not (is_json or kind in ("text/plain", "application/octet-stream"))


def _read_json(content: bytes) -> Any:
    try:
        read = json.loads(content, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return None
    return composed(read) if isinstance(read, dict | list) else None


def _read_multipart(content_type: str, content: bytes) -> tuple[Any, bool] | None:
    """The fields of a form, and whether there are files in it or parts of another type, which say what nobody can tell."""
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
    return composed(_pairs(pairs)), is_opaque
