"""The request log of WebApps: collected in memory while requests are served, and stored in batches."""

import secrets
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.monitor import AnsweredRequest, count_requests, delete_older, delete_older_by_number, metrics, storable_text

from .anonymization import Addresses, agent_family, referrer_host, stored_address, stored_path, visitor_number
from .daily_totals import DAY, Stored, add_sums
from .quotas import Quotas

MOST_WAITING = 20_000
AT_ONCE = 500
PATH_BYTES = 500
DROPPED = metrics.registry.counter("gos_webapp_requests_dropped_total", "Requests to WebApps that were served but not logged.")
_COLUMNS = (
    "tenant_id, app_id, at, method, path, status, bytes, ms, address, agent, referrer, visitor_kind, visitor, route, execution_id"
)
_PLACES = f"({', '.join('?' * 15)})"


@dataclass(slots=True)
class HandledRequest:
    """A request that was handled; `host` is the host it was sent to, `at` is in milliseconds."""

    tenant: str
    app: str
    at: int
    method: str
    path: str
    status: int
    bytes: int
    ms: float
    address: str
    agent: str
    referrer: str
    host: str
    visitor_kind: str = "anonymous"
    route: str | None = None
    execution_id: str | None = None


class RequestLog:
    """Buffers requests until `flush` stores them; when the buffer is full, further ones are counted as dropped.

    A process that is killed loses its buffer, about two seconds of requests.
    """

    def __init__(self, addresses: Addresses, quotas: Quotas, most_waiting: int = MOST_WAITING) -> None:
        self.quotas = quotas
        self._addresses = addresses
        self._max_buffered = most_waiting
        self._buffer: deque[HandledRequest] = deque()
        self._flushing = threading.Lock()

    def add(self, request: HandledRequest) -> None:
        """Add a request. Called on the event loop, so it never waits."""
        if len(self._buffer) >= self._max_buffered:
            DROPPED.inc(1)
        else:
            self._buffer.append(request)

    def has_requests(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._buffer)

    def flush(self) -> None:
        """Store the buffered requests; they stay in the buffer if storing fails."""
        with self._flushing:
            while batch := [self._buffer.popleft() for _ in range(min(AT_ONCE, len(self._buffer)))]:
                try:
                    stored = db.write(partial(_store, batch, self._addresses))
                except BaseException:
                    self._buffer.extendleft(reversed(batch))
                    raise
                self.quotas.update_stored(stored)


def _store(batch: Sequence[HandledRequest], addresses: Addresses) -> Stored:
    """Inside a write; returns the bytes of the whole batch, including requests that are not logged because their app does not
    exist."""
    existing = _existing_apps({request.tenant for request in batch})
    logged = [request for request in batch if (request.tenant, request.app) in existing]
    salts = {day: _salt(day) for day in {request.at // DAY * DAY for request in logged}}
    values: list[object] = []
    for request in logged:
        number = visitor_number(
            salts[request.at // DAY * DAY], request.tenant, request.app, (request.address, request.agent)
        )  # fmt: skip
        values += (
            request.tenant, request.app, request.at, request.method[:20], storable_text(stored_path(request.path), PATH_BYTES),
            request.status, request.bytes, request.ms, stored_address(request.address, addresses), agent_family(request.agent),
            storable_text(referrer_host(request.referrer, request.host), 253), request.visitor_kind, number, request.route,
            request.execution_id,
        )  # fmt: skip
    if logged:
        places = ", ".join([_PLACES] * len(logged))
        db.execute(f"INSERT INTO webapp_request ({_COLUMNS}) VALUES {places}", tuple(values))  # noqa: S608
    count_requests(AnsweredRequest(
        tenant_id=each.tenant, of="webapp", name=each.app, at=each.at, status=each.status, ms=each.ms, sent=each.bytes,
    ) for each in logged)
    sent: Counter[tuple[str, str, int]] = Counter()
    for request in batch:
        sent[request.tenant, request.app, request.at // DAY * DAY] += request.bytes
    for key, requests in sorted(Counter((request.tenant, request.app, request.at // DAY * DAY) for request in logged).items()):
        add_sums(key, requests, sent[key])
    return sent


def _existing_apps(tenants: set[str]) -> set[tuple[str, str]]:
    """The apps that exist: any name can be requested on a tenant's content host, but only requests to apps are logged."""
    places = ", ".join("?" * len(tenants))
    sql = f"SELECT tenant_id, id FROM webapp WHERE tenant_id IN ({places})"  # noqa: S608
    return {(str(tenant), str(app)) for tenant, app in db.rows(sql, tuple(sorted(tenants)))}


def _salt(day: int) -> str:
    """The salt of a day, shared by all processes; older salts are deleted when a new one is created."""
    rows: Sequence[tuple[str, ...]] = db.rows("SELECT salt FROM webapp_salt WHERE day = ?", (day,))
    if not rows:
        db.execute("DELETE FROM webapp_salt WHERE day < ?", (clock.now_ms() // DAY * DAY - DAY,))
        db.execute("INSERT INTO webapp_salt (day, salt) VALUES (?, ?)", (day, secrets.token_hex(16)))
        return _salt(day)
    return str(rows[0][0])


def purge(before_ms: int) -> int:
    """Delete the requests and sums of every tenant before `before_ms`; returns the number of requests."""
    delete_older("webapp_traffic", "day", "day", before_ms)
    return delete_older_by_number("webapp_request", "id", "at", before_ms)
