"""Serves routes of WebApps: the browser calls its own origin, and the appliance runs the process as the app."""

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.errors import ApplianceError, MethodNotAllowed, NotFound, Overloaded, PolicyDenied, RateLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.monitor import Line
from appliance.monitor import logs as log_lines
from appliance.sites.front.buckets import BucketLimit, Buckets
from appliance.sites.front.scope_keys import LOG_FIELDS
from appliance.web import Exchange, Services, answer, explain_fault_in_thread
from appliance.webapps.access import Visitor
from appliance.webapps.publishing import is_suspended
from appliance.webapps.routes import Match, Route, RouteTable

from .entity_routes import EntityRoutes
from .following import PREFIX, ExecutionFollower
from .origins import check_origin
from .process_routes import ProcessRoutes
from .route_answers import Reply, to_error_reply
from .route_calls import RouteCall, check_access
from .sending import Sender
from .tickets import Tickets

log = logging.getLogger(__name__)
REFUSED_LOG_LIMIT = BucketLimit(20, 600)  # log lines about refused calls per address
SUSPENDED = mark_error(
    "this app is not allowed to do this now, because no owner has confirmed its access; try again later, or tell the operator of "
    "the app: an owner can confirm it in the console, under Confirmations"
)


@dataclass(frozen=True)
class RouteRequest:
    """A request that a route may handle. `has_file` tells whether the version has a file at this path; `allowed_until` is when
    the routes stop responding (epoch ms; None: never)."""

    exchange: Exchange
    tenant: TenantScope
    app: str
    table: RouteTable
    has_file: bool
    visitor: Visitor
    allowed_until: int | None = None


class Routes:
    """Serves the routes of every app."""

    def __init__(self, services: Services, sender: Sender) -> None:
        tickets = Tickets(services.sealer)
        self._threads, self._sender, self._languages = services.threads, sender, services.languages
        self._buckets = Buckets(services.limits.servers)
        self._following = ExecutionFollower(tickets, self._buckets, sender)
        self._processes = ProcessRoutes(services, sender, tickets)
        self._entities = EntityRoutes(services, sender)
        self._address_limit = BucketLimit(services.config.limits.route_calls, 60)
        self._max_running = max(
            1, services.config.server.max_in_flight // 2
        )  # the other half is for everything else; a tenant has half of these
        self._running: Counter[str] = Counter()

    async def answer(self, request: RouteRequest) -> bool:
        """Respond if the request is for a route or a ticket; returns False to leave it to the files of the version."""
        scope = request.exchange.scope
        method, path = scope["method"], scope["path"]
        match = request.table.find(method, path)
        allowed = [] if match else request.table.methods(path)
        if match is None and not path.startswith(PREFIX) and (not allowed or (request.has_file and method in ("GET", "HEAD"))):
            return False
        tenant = TenantScope(request.tenant.tenant_id, f"webapp:{request.app}", request_id=scope["gos.request_id"])
        language = self._languages.choose("", request.exchange.request.headers.get("accept-language", ""))
        call = RouteCall(request.exchange, tenant, request.app, request.visitor, language)
        started_at = clock.monotonic()
        with logs.log_context(request_id=call.request.request_id):
            reply = await self._perform(call, match, allowed, is_suspended=is_suspended(request.allowed_until))
            if match is not None and LOG_FIELDS in scope:
                scope[LOG_FIELDS].update(route=match.route.path, execution_id=reply.execution_id if reply else None)
            if reply is not None:
                await answer(request.exchange.send, reply.status, reply.body, reply.encoded())
                if match is not None and self._should_log(call, reply.status):
                    _log_call(call, match.route, reply, round((clock.monotonic() - started_at) * 1000))
        return True

    def _should_log(self, call: RouteCall, status: int) -> bool:
        """Whether to log this call; refused calls are limited, so that they do not fill the log."""
        if status not in (401, 403, RateLimited.status):
            return True
        try:
            self._buckets.take(("refused", call.tenant.tenant_id, call.app, call.address), REFUSED_LOG_LIMIT)
        except RateLimited:
            return False
        return status != RateLimited.status

    async def _perform(self, call: RouteCall, match: Match | None, allowed: list[str], *, is_suspended: bool) -> Reply | None:
        try:
            if "\0" in call.request.path:
                raise NotFound("there is nothing at this address")
            if match is not None and is_suspended:
                raise PolicyDenied(SUSPENDED, extra={"reason": "grant_required"})
            if match is not None:
                return await self._serve(call, match)
            if call.request.path.startswith(PREFIX):
                return await self._following.answer(call)
            message = Sentence(
                "%(method)s is not supported here; use %(allowed)s", method=call.request.method, allowed=", ".join(allowed)
            )
            raise MethodNotAllowed(message, headers={"Allow": ", ".join(allowed)})
        except Exception as fault:  # noqa: BLE001  logged by _to_coded
            error = _to_coded(await explain_fault_in_thread(self._threads, fault, call.tenant.tenant_id))
            return to_error_reply(error, call.request.request_id, call.language, as_page=call.wants_page)

    async def _serve(self, call: RouteCall, match: Match) -> Reply:
        route = match.route
        check_origin(call.request.method, call.request.origin, call.request.headers, public=route.access == "public")
        limits = self._count(call, route)
        check_access(call.visitor, route.access)
        target = self._processes if route.process else self._entities
        body = await target.read(call, route)  # without a slot, because it may arrive slowly
        try:
            with self._running_slot(call.tenant.tenant_id):
                reply = await target.run(call, match, body)
        finally:
            if body.files:
                await self._sender.in_thread(body.discard)
        return reply.with_headers(*((name.lower(), value) for name, value in limits.items()))

    @contextmanager
    def _running_slot(self, tenant_id: str) -> Iterator[None]:
        if self._running.total() >= self._max_running or self._running[tenant_id] >= (self._max_running + 1) // 2:
            raise Overloaded("the appliance is busy; try again in a moment", headers={"Retry-After": "1"})
        self._running[tenant_id] += 1
        try:
            yield
        finally:
            self._running[tenant_id] -= 1
            self._running += Counter()  # drops zero counts

    def _count(self, call: RouteCall, route: Route) -> dict[str, str]:
        """Count the call; returns the RateLimit headers, or raises RateLimited."""
        app = (call.tenant.tenant_id, call.app)
        state = self._buckets.take(("all", *app, call.address), self._address_limit)
        if route.rate_limit is not None:
            limit = route.rate_limit
            # A session that is only a cookie chosen by the browser could be a new one for each call.
            per = call.holder if limit.per == "session" and call.visitor.session else call.address
            key = ("route", *app, route.path, call.request.method, per)
            state = self._buckets.take(key, BucketLimit(limit.requests, limit.window_s))
        return state.headers()


def _to_coded(error: Exception) -> ApplianceError:
    """The error for a visitor; a fault is logged."""
    if isinstance(error, ApplianceError):
        return error
    log.error("a route failed", exc_info=error)
    return ApplianceError("an unexpected error occurred; try again")


def _log_call(call: RouteCall, route: Route, reply: Reply, milliseconds: int) -> None:
    """Write a line to the tenant's log, without request or response contents."""
    level = "info" if reply.status < 400 else "warn" if reply.status < 500 else "error"
    fields = {
        "webapp": call.app, "route": route.path, "method": call.request.method, "status": reply.status, "ms": milliseconds,
        "visitor": call.visitor.kind,
    }  # fmt: skip
    text = f"{call.app}: {call.request.method} {route.path} {reply.status}"
    line = Line(
        at=clock.now_ms(), level=level, source="webapp", message=text, fields=fields, execution_id=reply.execution_id,
        process_id=reply.process_id, step=None, request_id=call.request.request_id,
    )
    db.submit(partial(log_lines.write_lines, call.tenant, [line])).add_done_callback(_report_failure)


def _report_failure(write: "Future[None]") -> None:
    if (failure := write.exception()) is not None:
        log.error("a call of a route was not logged", exc_info=failure)
