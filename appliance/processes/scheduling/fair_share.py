"""Fair sharing of a process's execution places among tenants, so that one tenant's backlog cannot block the others."""

from collections import Counter
from collections.abc import Iterable
from itertools import count
from threading import Lock

from appliance.core.database import db
from appliance.core.leases.open_tenants import fenced_tenants

# Tenants with executions ready to start, found by skipping from one tenant to the next in the index.
_READY_TENANTS = """
WITH RECURSIVE ready (tenant_id) AS (
    SELECT min(tenant_id) FROM execution WHERE status = 'queued' AND wait_reason IS NULL AND tenant_id > ''
    UNION ALL
    SELECT (SELECT min(e.tenant_id) FROM execution e WHERE e.status = 'queued' AND e.wait_reason IS NULL
            AND e.tenant_id > ready.tenant_id) FROM ready WHERE ready.tenant_id IS NOT NULL
) SELECT tenant_id FROM ready WHERE tenant_id IS NOT NULL"""
_FIRST = (
    "SELECT id FROM execution WHERE tenant_id = ? AND status = 'queued' AND wait_reason IS NULL ORDER BY rank, id LIMIT 1"
)


def ready_tenants() -> list[str]:
    """The tenants with executions that may start now; the cost depends on their number, not on their backlogs."""
    ready = [row[0] for row in db.rows(_READY_TENANTS)]
    fenced = fenced_tenants() if ready else frozenset()
    return [each for each in ready if each not in fenced]


def first_ready(tenant_id: str) -> str | None:
    """Inside a write: the tenant's next execution that is ready to start and that no other worker is claiming; None without one."""
    rows = db.rows(_FIRST + db.skip_locked(), (tenant_id,))
    return rows[0][0] if rows else None


def anything_ready() -> bool:
    """Whether any execution may start now."""
    sql = "SELECT 1 FROM execution WHERE status = 'queued' AND finished_at IS NULL AND wait_reason IS NULL LIMIT 1"
    return bool(db.rows(sql)) and bool(ready_tenants())


class FairShare:
    """The execution places of this process and the tenants that occupy them; thread-safe.

    The tenant with the fewest running executions comes first, among equals the one served longest ago.  The last quarter of
    the places is reserved for tenants without running executions, so that one with long executions cannot take them all.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._reserved = max(1, places // 4) if places > 1 else 0
        self._in_places: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        self._numbers = count(1)
        self._lock = Lock()

    def acquire(self, tenants: Iterable[str]) -> str | None:
        """Gives a place to one of these tenants; None when none of them may have one.  The caller gives it back afterwards."""
        with self._lock:
            free = self._places - self._in_places.total()
            candidates = [each for each in tenants if free > (self._reserved if self._running[each] else 0)]
            if not candidates:
                return None
            chosen = min(candidates, key=lambda each: (self._running[each], self._served.get(each, 0)))
            self._in_places[chosen] += 1
            self._begin(chosen)
            return chosen

    def release(self, tenant_id: str) -> None:
        """Frees a place of the tenant."""
        with self._lock:
            self._drop(self._in_places, tenant_id)
            self._drop(self._running, tenant_id)

    def begin_extra(self, tenant_id: str) -> None:
        """Counts an execution that runs without a place, because a caller waits for its result."""
        with self._lock:
            self._begin(tenant_id)

    def end_extra(self, tenant_id: str) -> None:
        """Ends the count of an execution without a place."""
        with self._lock:
            self._drop(self._running, tenant_id)

    def _begin(self, tenant_id: str) -> None:
        self._running[tenant_id] += 1
        self._served[tenant_id] = next(self._numbers)

    @staticmethod
    def _drop(counter: Counter[str], tenant_id: str) -> None:
        counter[tenant_id] -= 1
        if counter[tenant_id] <= 0:
            del counter[tenant_id]
