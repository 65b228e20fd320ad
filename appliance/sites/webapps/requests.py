"""Enforces quotas in front of the hosts of WebApps, and logs every request when it has been answered."""

from collections.abc import MutableMapping
from typing import Any

from appliance.core import clock
from appliance.core.errors import RateLimited
from appliance.sites.front.readers import Readers
from appliance.sites.front.scope_keys import LOG_FIELDS, VISITOR
from appliance.web import App, Receive, Scope, Send
from appliance.webapps.access import ANONYMOUS
from appliance.webapps.traffic import HandledRequest, RequestLog


class LoggedRequests:
    """Passes the requests of visitors on; requests by the appliance itself are neither limited nor logged."""

    def __init__(self, app: App, log: RequestLog, readers: Readers) -> None:
        self._app, self._readers = app, readers
        self._log = log
        self._quotas = log.quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if VISITOR in scope:
            await self._app(scope, receive, send)
            return
        started_at = clock.monotonic()
        status, sent = 500, 0

        async def count_and_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        match = scope["gos.host"]
        scope[LOG_FIELDS] = {}
        try:
            if (refusal := self._check_quota(match.tenant, match.app)) is None:
                await self._app(scope, receive, count_and_send)
            else:
                await self._readers.refuse(refusal, scope, count_and_send)
        finally:
            self._quotas.add_sent(match.tenant, match.app, sent)
            self._log.add(_to_log_entry(scope, status, sent, (clock.monotonic() - started_at) * 1000))

    def _check_quota(self, tenant: str, app: str) -> RateLimited | None:
        try:
            self._quotas.count(tenant, app, clock.now_ms())
        except RateLimited as error:
            return error
        return None


def _to_log_entry(scope: Scope, status: int, sent: int, ms: float) -> HandledRequest:
    headers = dict(scope["headers"])
    match = scope["gos.host"]
    return HandledRequest(
        tenant=match.tenant, app=match.app, at=clock.now_ms(), method=scope["method"], path=scope["path"], status=status,
        bytes=sent, ms=round(ms, 1), address=scope["gos.address"], agent=headers.get(b"user-agent", b"").decode("latin1"),
        referrer=headers.get(b"referer", b"").decode("latin1"),
        host=headers.get(b"host", b"").decode("latin1").rpartition(":")[0] or headers.get(b"host", b"").decode("latin1"),
        visitor_kind=scope.get(VISITOR, ANONYMOUS).kind, **scope[LOG_FIELDS],
    )  # fmt: skip
