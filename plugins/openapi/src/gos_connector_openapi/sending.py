"""Builds the request of an action from its plan and input, and turns an unsuccessful status into an error."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from appliance.connectors.contract import (
    ConfigError,
    ConnectorError,
    HttpAnswer,
    HttpRequest,
    Json,
    RateLimited,
    excerpt,
    retry_after,
    status_error,
)
from gos_connector_openapi.bodies import write_body
from gos_connector_openapi.parameters import Pairs, write_header, write_pairs, write_path
from gos_connector_openapi.security import choose_schemes, credentials

_EXCERPT = 2000


@dataclass(frozen=True)
class PreparedRequest:
    """A request, and whether it already carries its credentials."""

    request: HttpRequest
    has_credentials: bool


def base_of(settings: Json, plan: Json) -> str:
    """The base address of the operations; ConfigError when neither settings nor document have one.

    The setting `base_url` takes precedence over every server of the document, so that credentials go nowhere else.
    """
    base, server = str(settings.get("base_url", "")).rstrip("/"), str(plan.get("server", ""))
    if not base:
        if not server:
            raise ConfigError("The document does not name a server: set base_url.")
        return server
    return base


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address; ConfigError when the address is invalid."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is not an address.") from error


def build_request(settings: Json, plan: Json, arguments: Json, key: str) -> PreparedRequest:
    """The request of a call with this input."""
    steps = plan["parameters"]
    headers: Pairs = [("Accept", plan["accept"])]
    params: Pairs = []
    cookies: Pairs = []
    for step in steps:
        if step["member"] not in arguments or (arguments[step["member"]] is None and step["in"] != "path"):
            continue
        value = arguments[step["member"]]
        if step["in"] == "query":
            params += write_pairs(step, value)
        elif step["in"] == "header":
            headers.append(write_header(step, value))
        elif step["in"] == "cookie":
            cookies += write_pairs(step, value)
    content = b""
    if "body" in plan and "body" in arguments:
        content, media = write_body(plan["body"], arguments["body"])
        headers.append(("Content-Type", media))
    schemes = choose_schemes(plan["security"], settings)
    if schemes is not None:
        auth_headers, auth_params, auth_cookies = credentials(schemes, settings)
        headers, params, cookies = (
            _merge(headers, auth_headers, fold=True), _merge(params, auth_params), _merge(cookies, auth_cookies)
        )  # fmt: skip
    if cookies:
        headers.append(("Cookie", "; ".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in cookies)))
    if plan["method"] not in ("GET", "HEAD", "OPTIONS") and not any(name.lower() == "idempotency-key" for name, _ in headers):
        headers.append(("Idempotency-Key", key))
    headers = _merge(list(settings.get("headers", {}).items()), headers, fold=True)
    url = f"{base_of(settings, plan)}{write_path(plan['path'], steps, arguments)}"
    return PreparedRequest(HttpRequest(plan["method"], url, headers, params, content), schemes is not None)


def _merge(base: Pairs, overrides: Pairs, *, fold: bool = False) -> Pairs:
    """Both lists joined; a name in `above` replaces the same name in `below`."""
    names = {name.lower() if fold else name for name, _ in overrides}
    return [pair for pair in base if (pair[0].lower() if fold else pair[0]) not in names] + overrides


def next_page_url(request: HttpRequest, url: str) -> str:
    """The address of the next page; ConfigError when it is on another host, which must not receive the credentials."""
    absolute = urljoin(request.url, url)
    if origin(absolute) != origin(request.url) or re.search(r"[\x00-\x20\\]", absolute):
        raise ConfigError("The next page is on another host and was not requested.")
    return absolute


def error_of(answer: HttpAnswer, who: str = "The service") -> ConnectorError | None:
    """The error for a status, with `who` as the subject of its message; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    reason, details = _service_message(answer), {"status": status, "body": excerpt(answer, _EXCERPT)}
    wait_s = _wait_seconds(answer)
    if status == 429 or (status in (403, 503) and wait_s is not None):
        ending = f": {reason}" if reason else f" ({status})."
        return RateLimited(f"{who} limits the rate of requests{ending}", retry_after=wait_s, details=details)
    return status_error(answer, who, reason=reason, details=details)


def _wait_seconds(answer: HttpAnswer) -> float | None:
    """Seconds until the next request is allowed, where the service says so."""
    after = retry_after(answer)
    reset = answer.headers.get("x-ratelimit-reset", "")
    if after is None and answer.headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        moment = float(reset[:12])
        return max(0.0, moment - time.time()) if moment > 1e9 else moment
    return after


def _service_message(answer: HttpAnswer) -> str:
    """The service's own error message from one of the usual members; empty when there is none."""
    body = _object(answer)
    inner = body.get("error")
    for place in (body, inner if isinstance(inner, Mapping) else {}):
        for name in ("message", "detail", "title", "error_description", "error"):
            if isinstance(place.get(name), str) and place[name].strip():
                return f"{' '.join(place[name].split())[:300].rstrip('.')}."
    return ""


def _object(answer: HttpAnswer) -> Mapping[str, Any]:
    try:
        value = json.loads(answer.content[:100_000])
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
