"""Sends requests to one service: below its address, with its credentials, and with a CSRF token when configured."""

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit

from appliance.connectors.contract import ConfigError, Context, HttpAnswer, HttpRequest, Json, SystemFailure, authorized
from gos_connector_odata.answer import parse_sap_messages, status_error

Pairs = list[tuple[str, str]]

_DEFAULT_PORT = {"http": 80, "https": 443}
_COOKIE_SPLIT = re.compile(r",(?=\s*[^;,=\s]+=)")


class Service:
    """One OData service; `auth` is the block of its credentials."""

    def __init__(self, settings: Json, auth: Json) -> None:
        self.base: str = settings["base_url"].rstrip("/")
        self._settings = settings
        self._auth = auth

    def address(self, path: str, options: Pairs) -> str:
        """The full address of a path of this service, with its query options."""
        # `$` is not encoded, because some services do not recognise $filter when it is percent-encoded.
        query = urlencode(options, quote_via=quote, safe="$,()'/:*")
        return f"{self.base}/{path}" + (f"?{query}" if query else "")

    def next_page_url(self, current: str, link: str) -> str:
        """The address of the next page; SystemFailure when it is outside the service."""
        try:
            url = urljoin(current, link)
            base, target = urlsplit(self.base), urlsplit(url)
            is_below = _origin(base) == _origin(target) and target.path.startswith(f"{base.path.rstrip('/')}/")
            has_parent_segment = ".." in unquote(target.path).split("/")
        except ValueError as error:
            raise SystemFailure(f"The service's next page has no valid address below {self.base}.") from error
        if has_parent_segment or not is_below:
            raise SystemFailure(f"The service's next page is not below {self.base}; credentials must not be sent elsewhere.")
        return url

    def get(self, url: str, ctx: Context, headers: Pairs, *, accept: str = "application/json;odata.metadata=minimal") -> HttpAnswer:
        """The successful response to a GET; raises errors of the connector contract otherwise."""
        return self._send(HttpRequest("GET", url, [("Accept", accept), *headers]), ctx)

    def change(self, method: str, url: str, ctx: Context, headers: Pairs, body: Any = None) -> HttpAnswer:
        """The successful response to a request that changes something."""
        all_headers = [("Accept", "application/json;odata.metadata=minimal"), *headers]
        content = b""
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            all_headers.append(("Content-Type", "application/json"))
        if self._settings.get("csrf", False):
            all_headers += self._csrf_headers(ctx)
        return self._send(HttpRequest(method, url, all_headers, (), content), ctx)

    def _send(self, request: HttpRequest, ctx: Context) -> HttpAnswer:
        defaults = [("OData-MaxVersion", "4.01"), *self._settings.get("headers", {}).items()]
        headers = _merge(defaults, request.headers)
        timeout = self._settings.get("timeout_s", 60)
        full_request = HttpRequest(request.method, request.url, headers, (), request.content, timeout)
        answer = authorized(ctx, self._auth).send(full_request)
        error = status_error(answer)
        if error is not None:
            raise error
        for message in parse_sap_messages(answer):
            ctx.log("warn", message)
        return answer

    def _csrf_headers(self, ctx: Context) -> Pairs:
        """Headers with the CSRF token that SAP Gateway requires for every change, and the cookies of its session."""
        answer = self.get(f"{self.base}/", ctx, [("X-CSRF-Token", "Fetch")])
        token = answer.headers.get("x-csrf-token")
        if not token:
            raise ConfigError("The service returned no CSRF token; remove the setting `csrf`.")
        cookies = [part.split(";")[0].strip() for part in _COOKIE_SPLIT.split(answer.headers.get("set-cookie", ""))]
        cookie_header = "; ".join(cookie for cookie in cookies if cookie)
        return [("X-CSRF-Token", token), *([("Cookie", cookie_header)] if cookie_header else [])]


def _merge(*layers: Sequence[tuple[str, str]]) -> Pairs:
    """Merge headers; later layers replace those of earlier ones, and names are compared case-insensitively."""
    merged: dict[str, tuple[str, str]] = {}
    for layer in layers:
        merged.update({name.lower(): (name, value) for name, value in layer})
    return list(merged.values())


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORT.get(parts.scheme)
