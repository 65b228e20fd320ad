"""Requests to one service: below its address, with its credentials, and with a CSRF token where it wants one."""

import base64
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    SystemFailure,
    TransientError,
)
from gos_connector_odata.answer import error_of, parse_object

Pairs = list[tuple[str, str]]

_DEFAULT_PORT = {"http": 80, "https": 443}
_COOKIE_SPLIT = re.compile(r",(?=\s*[^;,=\s]+=)")
# A token is renewed this long before its end, so that none ends on the way.
_TOKEN_MARGIN_S = 60.0


class Service:
    """One service; keeps the token of OAuth 2 until it ends."""

    def __init__(self, settings: Json) -> None:
        self.base: str = settings["base_url"].rstrip("/")
        self._settings = settings
        self._auth: Mapping[str, Any] = settings.get("auth", {})
        self._token = ("", 0.0)
        self._lock = threading.Lock()

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
        for attempt in (1, 2):
            login = self._login(ctx)
            usual = [("OData-MaxVersion", "4.01"), *self._settings.get("headers", {}).items()]
            headers = _merge(usual, request.headers, login)
            timeout = self._settings.get("timeout_s", 60)
            answer = ctx.http.send(HttpRequest(request.method, request.url, headers, (), request.content, timeout))
            if answer.status == 401 and attempt == 1 and self._auth.get("kind") == "oauth2":
                self._forget(login)
                continue
            break
        error = error_of(answer)
        if error is not None:
            raise error
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

    # -- credentials

    def _login(self, ctx: Context) -> Pairs:
        auth = self._auth
        match auth.get("kind", "none"):
            case "basic":
                login = base64.b64encode(f"{auth['username']}:{auth['password']}".encode()).decode("ascii")
                return [("Authorization", f"Basic {login}")]
            case "bearer":
                return [("Authorization", f"Bearer {auth['token']}")]
            case "header":
                return [(auth["name"], auth["value"])]
            case "oauth2":
                return [("Authorization", f"Bearer {self._fresh_token(ctx)}")]
        return []

    def _forget(self, login: Pairs) -> None:
        with self._lock:
            if login == [("Authorization", f"Bearer {self._token[0]}")]:
                self._token = ("", 0.0)

    def _fresh_token(self, ctx: Context) -> str:
        with self._lock:
            token, until = self._token
        if time.monotonic() < until:
            return token
        token, lasts = self._fetch_token(ctx)
        with self._lock:
            self._token = (token, time.monotonic() + max(0.0, lasts - _TOKEN_MARGIN_S))
        return token

    def _fetch_token(self, ctx: Context) -> tuple[str, float]:
        """An access token of the client credentials grant (RFC 6749 § 4.4), and how many seconds it lasts."""
        auth = self._auth
        form = {"grant_type": "client_credentials", "client_id": auth["client_id"], "client_secret": auth["client_secret"]}
        if scope := auth.get("scope"):
            form["scope"] = scope
        headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
        request = HttpRequest("POST", self._settings["token_url"], headers, (), urlencode(form).encode("ascii"), 30)
        try:
            answer = ctx.http.send(request)
        except ConnectorError as error:
            error.outcome = "not_done"  # asking for a token changes nothing in the service
            raise
        if answer.status == 429 or answer.status >= 500:
            raise TransientError(f"The token address failed ({answer.status}).", details={"status": answer.status})
        if answer.status != 200:
            raise AuthError(f"The token address refuses the client ({answer.status}); check client_id, client_secret and scope.")
        try:
            body = parse_object(answer)
            return str(body["access_token"]), float(body.get("expires_in", 300))
        except (SystemFailure, KeyError, TypeError, ValueError) as error:
            # Without the body: it may hold half a token.
            raise SystemFailure("The token address did not answer with an access token; check token_url.") from error


def _merge(*layers: Sequence[tuple[str, str]]) -> Pairs:
    """Later layers replace the headers of earlier ones; names are compared without case."""
    merged: dict[str, tuple[str, str]] = {}
    for layer in layers:
        merged.update({name.lower(): (name, value) for name, value in layer})
    return list(merged.values())


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORT.get(parts.scheme)
