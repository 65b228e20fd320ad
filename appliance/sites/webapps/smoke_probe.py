"""Requests a page of a WebApp like a visitor, from inside the appliance: without a socket, key or sign-in."""

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from appliance.core import clock, ids
from appliance.core.config import Config
from appliance.core.scope import TenantScope
from appliance.sites.front.scope_keys import VISITOR
from appliance.tenants import HostMatch
from appliance.web import App, Scope
from appliance.webapps.access import Visitor
from appliance.webapps.publishing import MOST_MS, Check, CheckResponse

log = logging.getLogger(__name__)

LARGEST = 1 << 20  # bytes of a body that are checked
SMOKE = Visitor("member", "smoke")


class _Response:
    """Collects a response, its body up to LARGEST; `whole` is set when enough has arrived."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_enough = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in message.get("headers", [])}
        else:
            self.body += message.get("body", b"")[: LARGEST - len(self.body)]
            if len(self.body) >= LARGEST or not message.get("more_body", False):
                self.is_enough.set()

    def to_seen(self, ms: int, problem: str | None = None) -> CheckResponse:
        return CheckResponse(self.status, self.headers, bytes(self.body), ms, problem)


class SmokeProbe:
    """A `Probe` through the hosts of WebApps, callable from any thread. Requests run on the server's `loop`, which owns the
    state of the hosts."""

    def __init__(self, sites: Mapping[str, App], config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self._sites = sites
        self._config = config
        self._loop = loop

    def __call__(self, scope: TenantScope, app: str, version: int | None, check: Check) -> CheckResponse:
        kind = "webapp" if version is None else "preview"
        request = self._scope_of(scope.tenant_id, app, version, check)
        return asyncio.run_coroutine_threadsafe(_ask(self._sites[kind], request), self._loop).result()

    def _scope_of(self, tenant_id: str, app: str, version: int | None, check: Check) -> Scope:
        host = self._config.webapp_url(tenant_id, app, version).partition("://")[2]
        raw, _, query = check.path.partition("?")
        match = HostMatch("webapp", tenant_id, app) if version is None else HostMatch("preview", tenant_id, app, version)
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": check.method,
            "scheme": self._config.scheme,
            "path": unquote(raw), "raw_path": raw.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", host.encode()), (b"accept", b"*/*"), (b"user-agent", b"gos-smoke")],
            "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 0), "gos.host": match, "gos.request_id": ids.new("req"),
            "gos.address": "127.0.0.1", VISITOR: SMOKE,
        }  # fmt: skip


async def _ask(app: App, request: Scope) -> CheckResponse:
    """Run one request, and cancel it once enough of the response has arrived."""
    response, started_at = _Response(), clock.monotonic()

    def ms() -> int:
        return round((clock.monotonic() - started_at) * 1000)

    responding = asyncio.ensure_future(app(request, _receive(), response.send))
    whole = asyncio.ensure_future(response.is_enough.wait())
    await asyncio.wait((responding, whole), timeout=MOST_MS / 1000, return_when=asyncio.FIRST_COMPLETED)
    took = ms()
    for task in (responding, whole):
        task.cancel()
    results = await asyncio.gather(responding, whole, return_exceptions=True)
    if isinstance(results[0], Exception):
        log.error("a smoke check failed with an unexpected error", exc_info=results[0])
        return response.to_seen(took, "the appliance failed to respond; see its log")
    if not response.is_enough.is_set():
        return response.to_seen(took, f"did not respond within {MOST_MS // 1000} s")
    return response.to_seen(took)


def _receive() -> Any:
    """A `receive` with an empty body, whose client never disconnects."""
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive
