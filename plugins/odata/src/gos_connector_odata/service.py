"""Requests to one service: below its address, with its credentials, and with a CSRF token where it wants one."""

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit

from appliance.connectors.contract import ConfigError, Context, HttpAnswer, HttpRequest, Json, SystemFailure, authorized
from gos_connector_odata.answer import error_of, messages_of

Pairs = list[tuple[str, str]]

_DEFAULT_PORT = {"http": 80, "https": 443}
_COOKIE_SPLIT = re.compile(r",(?=\s*[^;,=\s]+=)")


class Service:
    """One service; `auth` is the block of its credentials."""

    def __init__(self, settings: Json, auth: Json) -> None:
        self.base: str = settings["base_url"].rstrip("/")
        self._settings = settings
        self._auth = auth

    def address(self, path: str, options: Pairs) -> str:
        """The full address of a path of this service, with its query options."""
        # `$` stays as it is: some services do not know $filter when it is percent-encoded.
        query = urlencode(options, quote_via=quote, safe="$,()'/:*")
        return f"{self.base}/{path}" + (f"?{query}" if query else "")

    def following(self, current: str, link: str) -> str:
        """The address of the next page; SystemFailure when it leads out of the service."""
        try:
            url = urljoin(current, link)
            base, goal = urlsplit(self.base), urlsplit(url)
            is_below = _origin(base) == _origin(goal) and goal.path.startswith(f"{base.path.rstrip('/')}/")
            climbs = ".." in unquote(goal.path).split("/")
        except ValueError as error:
            raise SystemFailure(f"The service's next page has no address within {self.base}.") from error
        if climbs or not is_below:
            raise SystemFailure(f"The service's next page lies outside {self.base}, where its credentials must not go.")
        return url

    def get(self, url: str, ctx: Context, headers: Pairs, *, accept: str = "application/json;odata.metadata=minimal") -> HttpAnswer:
        """A successful answer to a GET; errors of the contract otherwise."""
        return self._checked(HttpRequest("GET", url, [("Accept", accept), *headers]), ctx)

    def change(self, method: str, url: str, ctx: Context, headers: Pairs, body: Any = None) -> HttpAnswer:
        """A successful answer to a request that changes something."""
        sent = [("Accept", "application/json;odata.metadata=minimal"), *headers]
        content = b""
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            sent.append(("Content-Type", "application/json"))
        if self._settings.get("csrf", False):
            sent += self._csrf(ctx)
        return self._checked(HttpRequest(method, url, sent, (), content), ctx)

    def _checked(self, request: HttpRequest, ctx: Context) -> HttpAnswer:
        usual = [("OData-MaxVersion", "4.01"), *self._settings.get("headers", {}).items()]
        headers = _merge(usual, request.headers)
        timeout = self._settings.get("timeout_s", 60)
        sent = HttpRequest(request.method, request.url, headers, (), request.content, timeout)
        answer = authorized(ctx, self._auth).send(sent)
        error = error_of(answer)
        if error is not None:
            raise error
        for message in messages_of(answer):
            ctx.log("warn", message)
        return answer

    def _csrf(self, ctx: Context) -> Pairs:
        """The token that SAP Gateway wants with every change, and the cookies of the session it belongs to."""
        answer = self.get(f"{self.base}/", ctx, [("X-CSRF-Token", "Fetch")])
        token = answer.headers.get("x-csrf-token")
        if not token:
            raise ConfigError("The service gives no CSRF token; leave the setting `csrf` out.")
        cookies = [part.split(";")[0].strip() for part in _COOKIE_SPLIT.split(answer.headers.get("set-cookie", ""))]
        held = "; ".join(cookie for cookie in cookies if cookie)
        return [("X-CSRF-Token", token), *([("Cookie", held)] if held else [])]


def _merge(*layers: Sequence[tuple[str, str]]) -> Pairs:
    """Later layers replace the headers of earlier ones; names are compared without case."""
    merged: dict[str, tuple[str, str]] = {}
    for layer in layers:
        merged.update({name.lower(): (name, value) for name, value in layer})
    return list(merged.values())


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORT.get(parts.scheme)
