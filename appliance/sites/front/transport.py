"""Between the listeners and the front: the plain listener beside HTTPS, an authority's questions, and HSTS."""

import asyncio
import re
from collections.abc import MutableMapping
from typing import Any

from appliance.core import clock, ids
from appliance.core.config import Config
from appliance.core.errors import InvalidRequest, UnknownHost
from appliance.tenants import match_host, split_host
from appliance.webapps.domains import CHALLENGE_PATH

from .answers import App, Receive, Scope, Send, answer, refuse
from .tls import ServerConfig

CHALLENGE = "/.well-known/acme-challenge/"
# Also without TLS: health checks, and what proves a domain before it can have a certificate.
PLAIN = ("/healthz", "/readyz")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}", re.ASCII)
_DAY = 86_400_000
_YEAR_SECONDS, _DAY_SECONDS = 31_536_000, 86_400
_STEPS = ((30 * _DAY, _YEAR_SECONDS), (7 * _DAY, 604_800), (_DAY, _DAY_SECONDS))  # age of the certificate → seconds


class Transport:
    """Wraps the front.  What comes by the plain listener is answered here, but for little; what goes by TLS may get HSTS."""

    def __init__(self, front: App, config: Config, server: ServerConfig) -> None:
        self._front = front
        self._config = config
        self._is_plain = config.tls_mode == "off"
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_plain:
            await self._front(scope, receive, send)
        elif scope["path"].startswith(CHALLENGE):  # by https too: what stands at port 80 may send an authority on
            await self._challenge(split_host(_host_header(scope)), scope["path"].removeprefix(CHALLENGE), send)
        elif scope["scheme"] == "https":
            await self._front(scope, receive, self._securing(scope, send))
        else:
            await self._plain(scope, receive, send)

    async def _plain(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, header = scope["path"], _host_header(scope)
        if path in PLAIN or path.startswith(CHALLENGE_PATH):
            await self._front(scope, receive, send)
            return
        scope["gos.request_id"] = ids.new("req")
        if match_host(header, self._config.domains).kind == "unknown":
            unknown = UnknownHost("this host name is not served here; check the address")
            await refuse(send, unknown, scope["gos.request_id"])
        elif scope["method"] not in ("GET", "HEAD") or _has(scope, b"x-api-key"):
            # Sent on, it would be secret no more than it was on its way here.
            await refuse(send, InvalidRequest("this port takes no data and no key; use https"), scope["gos.request_id"])
        else:
            query = f"?{scope['query_string'].decode('latin1')}" if scope["query_string"] else ""
            raw = scope.get("raw_path", path.encode()).partition(b"?")[0]
            where = f"https://{split_host(header)}{self._config.port_suffix}{raw.decode('latin1')}{query}"
            await answer(send, 308, b"", [(b"location", where.encode("latin1", "replace")), (b"cache-control", b"no-store")])

    async def _challenge(self, host: str, token: str, send: Send) -> None:
        found = None
        if host and _TOKEN.fullmatch(token) and self._server.certificates is not None:
            found = await asyncio.to_thread(self._server.certificates.challenge, host, token)
        kind = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]
        await answer(send, 404 if found is None else 200, (found or "").encode("ascii"), kind)

    def _securing(self, scope: Scope, send: Send) -> Send:
        seconds = self._hsts(split_host(_host_header(scope)))
        if not seconds:
            return send

        async def secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", [])
                if not any(name.lower() == b"strict-transport-security" for name, _ in headers):
                    message["headers"] = [*headers, (b"strict-transport-security", b"max-age=%d" % seconds)]
            await send(message)

        return secured

    def _hsts(self, host: str) -> int:
        """For how many seconds browsers are told to come by https only; 0 for not at all.  What an app says itself stays."""
        if not self._config.tls.hsts:
            return 0
        found = self._server.offer(host)
        if self._is_own(host):
            from_outside = self._config.tls_mode == "files" if found is None else found.certificate.since is not None
            return _YEAR_SECONDS if from_outside else _DAY_SECONDS
        if found is None or found.certificate.host != host or found.certificate.since is None:
            return 0
        age = clock.now_ms() - found.certificate.since
        return next((seconds for least, seconds in _STEPS if age >= least), 0)

    def _is_own(self, host: str) -> bool:
        """Whether this is the base host or a tenant's.  `localhost` is not: HSTS would hold for every port of the machine."""
        base, content = self._config.domains.base, self._config.domains.content
        if host == "localhost" or host.endswith(".localhost"):
            return False
        return f".{host}".endswith(f".{base}") and not f".{host}".endswith(f".{content}")


def _host_header(scope: Scope) -> str:
    return next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin1")


def _has(scope: Scope, wanted: bytes) -> bool:
    return any(name == wanted for name, _ in scope["headers"])
