"""The ASGI front: client address, host, request id, admission and metrics; requests to unknown hosts are refused here."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.core import clock, ids
from appliance.core.catalogues import Languages
from appliance.core.config import Config
from appliance.core.database.write_guards import GuardedRequest, guarding
from appliance.core.errors import ApplianceError, UnknownHost
from appliance.core.networks import network_of
from appliance.monitor import metrics
from appliance.tenants import PLACE, match_host, service
from appliance.web import App, Exchange, Reader, Receive, Scope, Send, answer, refuse

from . import request_spans
from .networks import Networks
from .pace import Incoming, Outgoing, Pace
from .places import Origin, RequestSlot, RequestSlots
from .proxy_logins import ProxyLogins
from .readers import Readers
from .work_queue import WorkQueue

log = logging.getLogger(__name__)

HEALTH = ("/healthz", "/readyz")
DURING_RESET = ("/console/settings/reset", "/static/")
"""What the host of a tenant's console serves while the tenant is reset: the page that shows the progress, and what it loads."""
_DETAILS = {
    "storage_full": "the disk is full or failing: writes are refused, reads continue; free some space",
    "stopping": "this process stops soon; it still answers, but send new requests to another",
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
# For answers that are no pages; pages have a policy of their own.
_DATA_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A redirect (302) may lead to a foreign server, which is not told from where.
_SECURITY_OF_REDIRECTS = tuple((name, b"no-referrer" if name == b"referrer-policy" else value) for name, value in _SECURITY)
REQUESTS = metrics.registry.counter("gos_http_requests_total", "Requests answered.", ("area", "status"))
SECONDS = metrics.registry.histogram("gos_http_request_seconds", "Time to answer a request.", ("area",))
CONTENT = ("webapp", "preview", "cdn")
AREAS = ("api", "api-docs", "console", "mcp", "hooks", "static", "metrics", "demo")


@dataclass(frozen=True)
class Readiness:
    """Whether requests can be served, and the state of each runtime that is not ready (`preparing` or `failed`)."""

    status: Literal["ok", "starting", "storage_full", "stopping"]
    runtimes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        view = {"status": self.status, "message": _DETAILS.get(self.status), "runtimes": self.runtimes}
        return json.dumps({name: value for name, value in view.items() if value}, separators=(",", ":")).encode()


class Front:
    """Wraps the application and the content hosts (`sites`, by kind of host): trusted proxies, host table, request id,
    admission, client pace, security headers, and request metrics."""

    pace = Pace()

    def __init__(
        self, app: App, sites: Mapping[str, App], config: Config, readiness: Callable[[], Readiness],
        languages: Languages | None = None,
    ) -> None:  # fmt: skip
        """`languages` of the pages that it makes itself; without, they are English."""
        self._readers = Readers(languages or Languages(list))
        self._app = app
        self._sites = sites
        self._config = config
        self._readiness = readiness
        self._trusted = Networks(config.server.trusted_proxies)
        self._logins = ProxyLogins(config.sign_in.trusted_headers)
        self.queue = WorkQueue(config.server.max_in_flight, config.server.queue_ms / 1000)
        self._places = RequestSlots(config.server.max_in_flight, self.queue)
        self._is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _acknowledge(receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name != b"cookie"}
        request_id = _request_id(headers.get(b"x-request-id", b""))
        self._apply_proxy_headers(scope, headers)
        started_at = clock.monotonic()
        status, is_complete = 0, False
        place = RequestSlot(self._places)
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        incoming = Incoming(receive, self.pace, place.released, place.ended, has_body=has_body)
        outgoing = Outgoing(send, self.pace, place.released)

        async def send_response(message: MutableMapping[str, Any]) -> None:
            nonlocal status, is_complete
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
                if not _is_site(scope):
                    _add_security(message["headers"], status)
                incoming.answered = True
                is_read = incoming.complete or await incoming.drain()
                is_last = not is_read or (self._is_draining and scope["http_version"] != "2")
                if is_last and not any(name.lower() == b"connection" for name, _ in message["headers"]):
                    message["headers"].append((b"connection", b"close"))
            await outgoing(message)

        scope["gos.request_id"] = request_id
        span = request_spans.start(scope, headers)
        try:
            await self._route(scope, headers, place, Exchange(scope, incoming, send_response))
            if place.ended.is_set() and status and not is_complete:
                await send_response({"type": "http.response.body", "body": b""})  # not cut off, so that clients reconnect
        except ApplianceError as error:
            if status:
                raise
            await refuse(send_response, error, request_id, self._reader(scope, headers))
        except asyncio.CancelledError:
            if not outgoing.stalled:
                raise
        finally:
            area = scope["path"].removeprefix("/").partition("/")[0]
            area = scope["gos.host"].kind if _is_site(scope) else area if area in AREAS else "other"
            REQUESTS.inc(1, area, str(status or 500))
            SECONDS.observe(clock.monotonic() - started_at, area)
            if span is not None:
                span.end(scope, area, status or 500)

    def begin_drain(self) -> None:
        """Tell load balancers to send nothing more, and clients of HTTP/1.1 to connect anew; requests are still served."""
        self._is_draining = True

    def end_streams(self) -> None:
        """End the open event streams, because the server stops; call on the event loop."""
        self._places.end_streams()

    async def _route(self, scope: Scope, headers: dict[bytes, bytes], place: RequestSlot, exchange: Exchange) -> None:
        if scope["path"] in HEALTH:
            await self._health(scope["path"], exchange.send)
            return
        match = match_host(headers.get(b"host", b"").decode("latin1"), self._config.domains)
        if match.kind == "unknown":
            raise UnknownHost("this host name is not served here; check the address")
        if match.tenant is not None and (match.kind in CONTENT or not scope["path"].startswith(DURING_RESET)):
            service.refuse_reset(match.tenant)
            guarded = GuardedRequest(service.guard_of(match.tenant))
        else:
            guarded = GuardedRequest()
        with guarding(guarded), place.occupy(Origin(match.tenant or "", network_of(scope["gos.address"]))):
            await place.take_turn(hash(headers.get(b"x-api-key") or headers.get(b"authorization")))
            scope["gos.host"], scope[PLACE] = match, place
            app = self._sites[match.kind] if match.kind in CONTENT else self._app
            await app(scope, exchange.receive, exchange.send)

    async def _health(self, path: str, send: Send) -> None:
        readiness = Readiness("ok") if path == "/healthz" else self._read_readiness()
        await answer(send, 200 if readiness.status == "ok" else 503, readiness.to_json(), [(b"content-type", b"application/json")])

    def _reader(self, scope: Scope, headers: dict[bytes, bytes]) -> Reader | None:
        """Who reads why the request is refused, which may be before its host is known; None for a program."""
        match = match_host(headers.get(b"host", b"").decode("latin1"), self._config.domains)
        return self._readers.of_visitor(scope) if match.kind in CONTENT else self._readers.of_page(scope)

    def _read_readiness(self) -> Readiness:
        return Readiness("stopping") if self._is_draining else self._readiness()

    def _apply_proxy_headers(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Take address, scheme and host from the forwarding headers of a trusted proxy; ignore them from anyone else."""
        peer = (scope.get("client") or ("", 0))[0]
        scope["gos.address"] = peer
        self._logins.take(scope, headers, peer)
        if peer not in self._trusted:
            return
        forwarded = [part.strip() for part in headers.get(b"x-forwarded-for", b"").decode("latin1").split(",") if part.strip()]
        while forwarded and scope["gos.address"] in self._trusted:
            scope["gos.address"] = forwarded.pop()
        proto = headers.get(b"x-forwarded-proto", b"").decode("latin1").strip().lower()
        if proto in ("http", "https"):
            scope["scheme"] = proto
        host = headers.get(b"x-forwarded-host")
        if host:
            headers[b"host"] = host
            scope["headers"] = [(b"host", host) if name == b"host" else (name, value) for name, value in scope["headers"]]


async def _acknowledge(receive: Receive, send: Send) -> None:
    """Answer the messages of ASGI about start and stop, which are the composition root's own business."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def _add_security(headers: list[tuple[bytes, bytes]], status: int) -> None:
    if not any(name.lower() == b"content-security-policy" for name, _ in headers):
        headers.append((b"content-security-policy", _DATA_POLICY))
    headers += _SECURITY if status != 302 else _SECURITY_OF_REDIRECTS


def _is_site(scope: Scope) -> bool:
    """Whether a content host responds; it sets its own security headers."""
    return "gos.host" in scope and scope["gos.host"].kind in CONTENT


def _request_id(raw: bytes) -> str:
    text = raw.decode("latin1")
    return text if _REQUEST_ID.fullmatch(text) else ids.new("req")
