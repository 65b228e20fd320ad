"""The log of requests to WebApps: noted in memory while they are answered, stored in batches beside them."""

import secrets
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.monitor import Answered, count, delete_older, metrics, storable_text

from .describing import Addresses, agent_family, referrer_host, shown_address, shown_path, visitor_number
from .quotas import Quotas
from .sums import DAY, Stored, add_sums

MOST_WAITING = 20_000
AT_ONCE = 500
PATH_BYTES = 500
DROPPED = metrics.registry.counter("gos_webapp_requests_dropped_total", "Requests to WebApps that were served but not logged.")
_COLUMNS = (
    "tenant_id, app_id, at, method, path, status, bytes, ms, address, agent, referrer, visitor_kind, visitor, route, execution_id"
)
_PLACES = f"({', '.join('?' * 15)})"


@dataclass(slots=True)
class SeenRequest:
    """A request that was answered, with all that came with it; `host` is where it was sent, `at` in milliseconds."""

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
    """Holds requests until `flush` stores them; when too many wait, more are counted as dropped.

    A process that is killed loses what waited: two seconds' worth.
    """

    def __init__(self, addresses: Addresses, quotas: Quotas, most_waiting: int = MOST_WAITING) -> None:
        self.quotas = quotas
        self._addresses = addresses
        self._most_waiting = most_waiting
        self._waiting: deque[SeenRequest] = deque()
        self._flushing = threading.Lock()

    def add(self, request: SeenRequest) -> None:
        """Note a request; on the event loop, so that nothing is waited for."""
        if len(self._waiting) >= self._most_waiting:
            DROPPED.inc(1)
        else:
            self._waiting.append(request)

    def flush(self) -> None:
        """Store what waits; what could not be stored waits again."""
        with self._flushing:
            while batch := [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]:
                try:
                    stored = db.write(partial(_store, batch, self._addresses))
                except BaseException:
                    self._waiting.extendleft(reversed(batch))
                    raise
                self.quotas.learn(stored)


def _store(batch: Sequence[SeenRequest], addresses: Addresses) -> Stored:
    """Inside a write; answers the bytes of the whole batch, also of what is no app and not kept."""
    known = _known_apps({request.tenant for request in batch})
    kept = [request for request in batch if (request.tenant, request.app) in known]
    salts = {day: _salt(day) for day in {request.at // DAY * DAY for request in kept}}
    values: list[object] = []
    for request in kept:
        number = visitor_number(
            salts[request.at // DAY * DAY], request.tenant, request.app, (request.address, request.agent)
        )  # fmt: skip
        values += (
            request.tenant, request.app, request.at, request.method[:20], storable_text(shown_path(request.path), PATH_BYTES),
            request.status, request.bytes, request.ms, shown_address(request.address, addresses), agent_family(request.agent),
            storable_text(referrer_host(request.referrer, request.host), 253), request.visitor_kind, number, request.route,
            request.execution_id,
        )  # fmt: skip
    if kept:
        places = ", ".join([_PLACES] * len(kept))
        db.execute(f"INSERT INTO webapp_request ({_COLUMNS}) VALUES {places}", tuple(values))  # noqa: S608
    count(Answered(each.tenant, "webapp", each.app, each.at, each.status, each.ms, each.bytes) for each in kept)
    sent: Counter[tuple[str, str, int]] = Counter()
    for request in batch:
        sent[request.tenant, request.app, request.at // DAY * DAY] += request.bytes
    for key, requests in sorted(Counter((request.tenant, request.app, request.at // DAY * DAY) for request in kept).items()):
        add_sums(key, requests, sent[key])
    return sent


def _known_apps(tenants: set[str]) -> set[tuple[str, str]]:
    """Any name may be asked for on a tenant's content host; only what is an app is logged."""
    places = ", ".join("?" * len(tenants))
    sql = f"SELECT tenant_id, id FROM webapp WHERE tenant_id IN ({places})"  # noqa: S608
    return {(str(tenant), str(app)) for tenant, app in db.rows(sql, tuple(sorted(tenants)))}


def _salt(day: int) -> str:
    """The salt of a day, the same for every process; those of days long over are deleted with the making of a new one."""
    found: Sequence[tuple[str, ...]] = db.rows("SELECT salt FROM webapp_salt WHERE day = ?", (day,))
    if not found:
        db.execute("DELETE FROM webapp_salt WHERE day < ?", (clock.now_ms() // DAY * DAY - DAY,))
        db.execute("INSERT INTO webapp_salt (day, salt) VALUES (?, ?)", (day, secrets.token_hex(16)))
        return _salt(day)
    return str(found[0][0])


def purge(before_ms: int) -> int:
    """Delete every tenant's requests, and their sums, from before `before_ms`; answers how many requests."""
    delete_older("webapp_traffic", "day", "day", before_ms)
    return delete_older("webapp_request", "id", "at", before_ms)
