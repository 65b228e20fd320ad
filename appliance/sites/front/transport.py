"""Handles requests between the listeners and the front: the plain HTTP listener, ACME challenges, and HSTS."""

import asyncio
import re
from collections.abc import MutableMapping
from typing import Any

from appliance.core import clock, ids
from appliance.core.config import Config
from appliance.core.errors import InvalidRequest
from appliance.tenants import match_host, split_host
from appliance.web import App, Receive, Scope, Send, answer, refuse
from appliance.webapps.domains import CHALLENGE_PATH

from .tls import ServerConfig

CHALLENGE = "/.well-known/acme-challenge/"
# Also without TLS: health checks, and what proves a domain before it can have a certificate.
PLAIN = ("/healthz", "/readyz")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}", re.ASCII)
_DAY = 86_400_000
_YEAR_SECONDS, _DAY_SECONDS = 31_536_000, 86_400
_STEPS = ((30 * _DAY, _YEAR_SECONDS), (7 * _DAY, 604_800), (_DAY, _DAY_SECONDS))  # age of the certificate → seconds


class Transport:
    """Wraps the front. Redirects most plain HTTP requests to HTTPS, and adds HSTS to HTTPS responses."""

    def __init__(self, front: App, config: Config, server: ServerConfig) -> None:
        self._front = front
        self._config = config
        self._is_plain = config.tls_mode == "off"
        self._is_behind_proxy = self._is_plain and bool(config.server.trusted_proxies)
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_plain:
            await self._front(scope, receive, self._with_hsts_of_proxy(scope, send) if self._is_behind_proxy else send)
        elif scope["path"].startswith(CHALLENGE):  # also over HTTPS, because a proxy at port 80 may redirect the authority
            await self._challenge(split_host(_host_header(scope)), scope["path"].removeprefix(CHALLENGE), send)
        elif scope["scheme"] == "https":
            await self._front(scope, receive, self._with_hsts(scope, send))
        else:
            await self._plain(scope, receive, send)

    async def _plain(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, header = scope["path"], _host_header(scope)
        if path in PLAIN or path.startswith(CHALLENGE_PATH):
            await self._front(scope, receive, send)
            return
        scope["gos.request_id"] = ids.new("req")
        if match_host(header, self._config.domains).kind == "unknown":
            await self._front(scope, receive, send)  # which refuses it, on a page in the language of a person
        elif scope["method"] not in ("GET", "HEAD") or _has_header(scope, b"x-api-key"):
            # Its content has already been exposed on the way here; a redirect would hide that.
            await refuse(send, InvalidRequest("this port accepts no data and no API key; use https"), scope["gos.request_id"])
        else:
            query = f"?{scope['query_string'].decode('latin1')}" if scope["query_string"] else ""
            raw = scope.get("raw_path", path.encode()).partition(b"?")[0]
            location = f"https://{split_host(header)}{self._config.port_suffix}{raw.decode('latin1')}{query}"
            await answer(send, 308, b"", [(b"location", location.encode("latin1", "replace")), (b"cache-control", b"no-store")])

    async def _challenge(self, host: str, token: str, send: Send) -> None:
        answer_text = None
        if host and _TOKEN.fullmatch(token) and self._server.certificates is not None:
            answer_text = await asyncio.to_thread(self._server.certificates.find_challenge_answer, host, token)
        headers = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]
        await answer(send, 404 if answer_text is None else 200, (answer_text or "").encode("ascii"), headers)

    def _with_hsts(self, scope: Scope, send: Send) -> Send:
        host = split_host(_host_header(scope))
        seconds = self._hsts(host)
        if not seconds:
            return send

        async def send_secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._add_hsts(message, host, seconds)
            await send(message)

        return send_secured

    def _with_hsts_of_proxy(self, scope: Scope, send: Send) -> Send:
        """For a request that a trusted proxy received by HTTPS; the front puts what the proxy says into the scope."""

        async def send_secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and scope["scheme"] == "https" and self._config.tls.hsts:
                host = split_host(_host_header(scope))
                if self._is_own(host):
                    self._add_hsts(message, host, _YEAR_SECONDS)
            await send(message)

        return send_secured

    def _add_hsts(self, message: MutableMapping[str, Any], host: str, seconds: int) -> None:
        headers = message.get("headers", [])
        if not any(name.lower() == b"strict-transport-security" for name, _ in headers):
            suffix = b"; includeSubDomains" if self._config.tls.hsts_subdomains and self._is_own(host) else b""
            message["headers"] = [*headers, (b"strict-transport-security", b"max-age=%d" % seconds + suffix)]

    def _hsts(self, host: str) -> int:
        """The HSTS max-age in seconds; 0 for no header. A header set by the app takes precedence."""
        if not self._config.tls.hsts:
            return 0
        offer = self._server.offer(host)
        if self._is_own(host):
            is_trusted = self._config.tls_mode == "files" if offer is None else offer.certificate.since is not None
            return _YEAR_SECONDS if is_trusted else _DAY_SECONDS
        if offer is None or offer.certificate.host != host or offer.certificate.since is None:
            return 0
        age = clock.now_ms() - offer.certificate.since
        return next((seconds for min_age, seconds in _STEPS if age >= min_age), 0)

    def _is_own(self, host: str) -> bool:
        """Whether this is the base host or a tenant's. `localhost` is excluded, because HSTS would affect every port of the
        machine."""
        base, content = self._config.domains.base, self._config.domains.content
        if host == "localhost" or host.endswith(".localhost"):
            return False
        return f".{host}".endswith(f".{base}") and not f".{host}".endswith(f".{content}")


def _host_header(scope: Scope) -> str:
    return next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin1")


def _has_header(scope: Scope, header: bytes) -> bool:
    return any(name == header for name, _ in scope["headers"])
