"""Asks a WebApp as a visitor would, from inside: no socket, no key, and no gate that asks who is there."""

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from appliance.core import clock, ids
from appliance.core.config import Config
from appliance.core.scope import TenantScope
from appliance.sites.front.answers import VISITOR, App, Scope
from appliance.tenants import HostMatch
from appliance.webapps.access import Visitor
from appliance.webapps.publishing import MOST_MS, Check, Seen

log = logging.getLogger(__name__)

LARGEST = 1 << 20  # of a body, what is looked at
SMOKE = Visitor("member", "smoke")


class _Answer:
    """What is sent, its body up to LARGEST; `whole` once there is enough of it."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.whole = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in message.get("headers", [])}
        else:
            self.body += message.get("body", b"")[: LARGEST - len(self.body)]
            if len(self.body) >= LARGEST or not message.get("more_body", False):
                self.whole.set()

    def seen(self, ms: int, problem: str | None = None) -> Seen:
        return Seen(self.status, self.headers, bytes(self.body), ms, problem)


class Probing:
    """A `Probe` through the hosts of WebApps, for threads; they answer on the server's `loop`, where all they know is changed."""

    def __init__(self, sites: Mapping[str, App], config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self._sites = sites
        self._config = config
        self._loop = loop

    def __call__(self, scope: TenantScope, app: str, version: int | None, check: Check) -> Seen:
        kind = "webapp" if version is None else "preview"
        asked = self._scope_of(scope.tenant_id, app, version, check)
        return asyncio.run_coroutine_threadsafe(_ask(self._sites[kind], asked), self._loop).result()

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


async def _ask(app: App, asked: Scope) -> Seen:
    """One request; what is still being sent when enough was seen is left."""
    found, began = _Answer(), clock.monotonic()

    def ms() -> int:
        return round((clock.monotonic() - began) * 1000)

    answering = asyncio.ensure_future(app(asked, _receive(), found.send))
    whole = asyncio.ensure_future(found.whole.wait())
    await asyncio.wait((answering, whole), timeout=MOST_MS / 1000, return_when=asyncio.FIRST_COMPLETED)
    took = ms()
    for task in (answering, whole):
        task.cancel()
    ended = await asyncio.gather(answering, whole, return_exceptions=True)
    if isinstance(ended[0], Exception):
        log.error("a smoke check met an error of the appliance", exc_info=ended[0])
        return found.seen(took, "the appliance failed to answer; its log says why")
    if not found.whole.is_set():
        return found.seen(took, f"did not answer within {MOST_MS // 1000} s")
    return found.seen(took)


def _receive() -> Any:
    """No body, and nobody who leaves."""
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive
