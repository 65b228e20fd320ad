"""One request of an action, made from its plan and input; and what a status says when it is no success."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    HttpAnswer,
    HttpRequest,
    Json,
    Outcome,
    RateLimited,
    Rejected,
    TransientError,
    retry_after,
)
from gos_connector_openapi.bodies import write_body
from gos_connector_openapi.parameters import Pairs, write_header, write_pairs, write_path
from gos_connector_openapi.security import choose, credentials

_EXCERPT = 2000
_NEVER_SUPPORTED = frozenset({501, 505})


@dataclass(frozen=True)
class Sending:
    """A request, and whether its credentials are in it already."""

    request: HttpRequest
    complete: bool


def base_of(settings: Json, plan: Json) -> str:
    """The address operations are below; ConfigError when nobody says where.

    A `base_url` that somebody has set comes before every server of the document, so that no credentials go anywhere else.
    """
    base, server = str(settings.get("base_url", "")).rstrip("/"), str(plan.get("server", ""))
    if not base:
        if not server:
            raise ConfigError("The document does not say where the system is: set base_url.")
        return server
    return base


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address; ConfigError for a port that is none."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as error:
        raise ConfigError(f"{url[:200]!r} is not an address.") from error


def build(settings: Json, plan: Json, given: Json, key: str) -> Sending:
    """The request of a call with this input."""
    steps = plan["parameters"]
    headers: Pairs = [("Accept", plan["accept"])]
    params: Pairs = []
    cookies: Pairs = []
    for step in steps:
        if step["member"] not in given or (given[step["member"]] is None and step["in"] != "path"):
            continue
        value = given[step["member"]]
        if step["in"] == "query":
            params += write_pairs(step, value)
        elif step["in"] == "header":
            headers.append(write_header(step, value))
        elif step["in"] == "cookie":
            cookies += write_pairs(step, value)
    content = b""
    if "body" in plan and "body" in given:
        content, media = write_body(plan["body"], given["body"])
        headers.append(("Content-Type", media))
    schemes = choose(plan["security"], settings)
    if schemes is not None:
        more = credentials(schemes, settings)
        headers, params, cookies = _over(headers, more[0], fold=True), _over(params, more[1]), _over(cookies, more[2])
    if cookies:
        headers.append(("Cookie", "; ".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in cookies)))
    if plan["method"] not in ("GET", "HEAD", "OPTIONS") and not any(name.lower() == "idempotency-key" for name, _ in headers):
        headers.append(("Idempotency-Key", key))
    headers = _over(list(settings.get("headers", {}).items()), headers, fold=True)
    url = f"{base_of(settings, plan)}{write_path(plan['path'], steps, given)}"
    return Sending(HttpRequest(plan["method"], url, headers, params, content), schemes is not None)


def _over(below: Pairs, above: Pairs, *, fold: bool = False) -> Pairs:
    """Both, where those above replace the names of those below."""
    names = {name.lower() if fold else name for name, _ in above}
    return [pair for pair in below if (pair[0].lower() if fold else pair[0]) not in names] + above


def following(request: HttpRequest, url: str) -> str:
    """The address of the next page; ConfigError when it lies on another host, where credentials must not go."""
    found = urljoin(request.url, url)
    if origin(found) != origin(request.url) or re.search(r"[\x00-\x20\\]", found):
        raise ConfigError("The next page lies on another host; it is not followed.")
    return found


def error_of(answer: HttpAnswer, who: str = "The service") -> ConnectorError | None:
    """The error a status stands for, told of `who`; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    told = _told(answer)
    details = {"status": status, "body": answer.content[:_EXCERPT].decode("utf-8", "replace")}
    patience = _patience(answer)
    if status == 429 or (status in (403, 503) and patience is not None):
        return RateLimited(f"{who} asks to wait ({status}){told}", retry_after=patience, details=details)
    if status in (401, 403):
        return AuthError(f"{who} does not accept the credentials ({status}){told}", details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"{who} failed ({status}){told}", outcome=outcome, details=details)
    if 300 <= status < 400:
        return Rejected(f"{who} points elsewhere ({status}) and was not followed.", details=details)
    return Rejected(f"{who} refused the request ({status}){told}", details=details)


def _patience(answer: HttpAnswer) -> float | None:
    """Seconds until the service may be asked again, where it says so."""
    after = retry_after(answer)
    reset = answer.headers.get("x-ratelimit-reset", "")
    if after is None and answer.headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        moment = float(reset[:12])
        return max(0.0, moment - time.time()) if moment > 1e9 else moment
    return after


def _told(answer: HttpAnswer) -> str:
    """What the service itself says, when it says it in one of the usual places."""
    body = _object(answer)
    inner = body.get("error")
    for place in (body, inner if isinstance(inner, Mapping) else {}):
        for name in ("message", "detail", "title", "error_description", "error"):
            if isinstance(place.get(name), str) and place[name].strip():
                return f": {' '.join(place[name].split())[:300].rstrip('.')}."
    return "."


def _object(answer: HttpAnswer) -> Mapping[str, Any]:
    try:
        found = json.loads(answer.content[:100_000])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
