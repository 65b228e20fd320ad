"""Builds HTTP requests from a plan and the values of a call; each value is escaped for its context."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit

from appliance.connectors.contract import ConfigError, HttpRequest, SystemFailure
from appliance.connectors.declarative.plan import ConnectorPlan, RequestPlan
from appliance.connectors.declarative.templates import MISSING, Template, Values, fill_tree, text_of

Pairs = list[tuple[str, str]]

_HOST_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BASE = re.compile(r"https?://[^/?#@\\\s]+(/[^?#\\\s]*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DEFAULT_PORT = {"http": 80, "https": 443}


def build_request(plan: ConnectorPlan, request: RequestPlan, values: Values) -> HttpRequest:
    """Build the request; ConfigError when a value is not allowed in its place."""
    auth_headers, auth_params = _credentials(plan, values)
    headers = _merge(_header_pairs(plan.headers, values), _header_pairs(request.headers, values), auth_headers, fold=True)
    params = _merge(_pairs(plan.query, values, "query"), _pairs(request.query, values, "query"), auth_params)
    content, kind = _body(request, values)
    if kind and not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", kind))
    url = base_address(plan, values) + _path(request.path, values)
    return HttpRequest(request.method, url, headers, params, content, request.timeout_s or plan.timeout_s)


def base_address(plan: ConnectorPlan, values: Values) -> str:
    """Return the base URL without a trailing slash; ConfigError when the settings do not produce a valid URL."""
    whole = len(plan.base_url.parts) == 1
    text = plan.base_url.text(values, (lambda text: text) if whole else _host_part)
    if not isinstance(text, str) or not _BASE.fullmatch(text) or _climbs(urlsplit(text).path):
        raise ConfigError("The settings give no address; it looks like https://host/path, without a query.")
    _port_of(_split(text))
    return text.rstrip("/")


def next_address(plan: ConnectorPlan, values: Values, current: str, target: str) -> str:
    """Return the next page's URL; it must be below the base URL because the request carries the credentials."""
    base = base_address(plan, values)
    try:
        url = urljoin(current, target).split("#")[0]
        here, there = urlsplit(base), urlsplit(url)
    except ValueError as error:
        raise SystemFailure("The next page's address is none.") from error
    prefix = here.path.rstrip("/")
    below = there.path == prefix or there.path.startswith(f"{prefix}/")
    if _origin(here) != _origin(there) or not below or _climbs(there.path) or _CONTROL.search(url):
        raise SystemFailure(f"The next page lies outside {base} and is not followed; credentials must not go there.")
    return url


def _host_part(text: str) -> str:
    """Check a setting inside a URL; without delimiters, it cannot redirect requests to another host."""
    if not _HOST_PART.fullmatch(text) or ".." in text:
        raise ConfigError("A setting that is a part of the address holds letters, digits, dots, hyphens and underscores only.")
    return text


def _path(path: Template, values: Values) -> str:
    for hole in path.holes:
        if hole.find(values) in (MISSING, None, ""):
            raise ConfigError(f"{hole} is a part of the address and must not be empty.")
    filled = str(path.text(values, lambda text: quote(text, safe="")))
    if _climbs(filled):
        raise ConfigError("A value makes the address contain `.` or `..` as a segment; that would lead elsewhere.")
    return filled


def _climbs(path: str) -> bool:
    return any(segment in (".", "..") for part in path.split("/") for segment in re.split(r"[/\\]", unquote(part)))


def _credentials(plan: ConnectorPlan, values: Values) -> tuple[Pairs, Pairs]:
    auth = plan.auth
    if auth.kind == "none":
        return [], []
    first, second = (part.text(values, lambda text: text) for part in (auth.first, auth.second))
    if first is MISSING or second is MISSING:
        raise ConfigError("The settings lack the credentials; fill them in.")
    match auth.kind:
        case "bearer":
            return [("Authorization", _header_value("the token", f"Bearer {first}"))], []
        case "basic":
            return [("Authorization", "Basic " + base64.b64encode(f"{first}:{second}".encode()).decode("ascii"))], []
        case "header":
            return [(auth.name, _header_value(auth.name, str(first)))], []
    return [], [(auth.name, str(first))]


def _header_pairs(headers: Mapping[str, Template], values: Values) -> Pairs:
    filled = ((name, template.text(values, lambda text: text)) for name, template in headers.items())
    return [(name, _header_value(name, text)) for name, text in filled if isinstance(text, str)]


def _header_value(name: str, text: str) -> str:
    """Check a header value: a line break would start another header or another request."""
    if _CONTROL.search(text) or not text.isascii():
        raise ConfigError(f"The value of the header {name} holds a line break, a control character or one beyond ASCII.")
    return text


def _pairs(tree: Mapping[str, Any], values: Values, name: str) -> Pairs:
    pairs: Pairs = []
    for member, value in fill_tree(tree, values).items():
        if isinstance(value, list):
            pairs += [(member, text_of(part, f"{name}.{member}")) for part in value if part is not None]
        elif value is not None:
            pairs.append((member, text_of(value, f"{name}.{member}")))
    return pairs


def _body(request: RequestPlan, values: Values) -> tuple[bytes, str]:
    if request.body_kind == "json":
        body = fill_tree(request.body, values)
        if body is MISSING:
            return b"", ""
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), "application/json"
    if request.body_kind == "form":
        return urlencode(_pairs(request.body, values, "form")).encode("ascii"), "application/x-www-form-urlencoded"
    return b"", ""


def _merge(*layers: Pairs, fold: bool = False) -> Pairs:
    """Later layers replace the names of earlier ones; header names are compared without case (`fold`)."""
    merged: Pairs = []
    for layer in layers:
        names = {name.lower() if fold else name for name, _ in layer}
        merged = [pair for pair in merged if (pair[0].lower() if fold else pair[0]) not in names] + layer
    return merged


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is not an address.") from error


def _port_of(parts: SplitResult) -> int | None:
    try:
        return parts.port or _DEFAULT_PORT.get(parts.scheme)
    except ValueError as error:
        raise ConfigError("The port of the address is no number up to 65535.") from error


def _origin(parts: SplitResult) -> tuple[str, str | None, str | None, int | None]:
    return parts.scheme, parts.username, parts.hostname, _port_of(parts)
