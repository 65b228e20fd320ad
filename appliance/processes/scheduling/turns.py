"""Whose turn it is among tenants: the places of one process are shared so that nobody's backlog keeps another from starting."""

from collections import Counter
from collections.abc import Iterable
from itertools import count
from threading import Lock

from appliance.core.database import db

# Tenants with something that may begin, found by leaping from one to the next in the index of what is ready.
_READY_TENANTS = """
WITH RECURSIVE ready (tenant_id) AS (
    SELECT min(tenant_id) FROM execution WHERE status = 'queued' AND wait_reason IS NULL
    UNION ALL
    SELECT (SELECT min(e.tenant_id) FROM execution e WHERE e.status = 'queued' AND e.wait_reason IS NULL
            AND e.tenant_id > ready.tenant_id) FROM ready WHERE ready.tenant_id IS NOT NULL
) SELECT tenant_id FROM ready WHERE tenant_id IS NOT NULL"""
_FIRST = (
    "SELECT id FROM execution WHERE tenant_id = ? AND status = 'queued' AND wait_reason IS NULL ORDER BY rank, id LIMIT 1"
)


def ready_tenants() -> list[str]:
    """Tenants of which something may begin; the cost grows with their number, not with their backlogs."""
    return [row[0] for row in db.rows(_READY_TENANTS)]


def first_ready(tenant_id: str) -> str | None:
    """The execution of a tenant whose turn it is."""
    found = db.rows(_FIRST, (tenant_id,))
    return found[0][0] if found else None


def anything_ready() -> bool:
    """Whether any execution may begin."""
    return bool(db.rows("SELECT 1 FROM execution WHERE status = 'queued' AND wait_reason IS NULL LIMIT 1"))


class Turns:
    """The places of this process and who has them; thread-safe.

    The tenant that runs least comes first, among equals whoever was served longest ago.  The last quarter of the places is
    for tenants that run nothing yet, so that one with long executions cannot take them all.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._kept_free = max(1, places // 4) if places > 1 else 0
        self._in_places: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        self._numbers = count(1)
        self._lock = Lock()

    def take(self, tenants: Iterable[str]) -> str | None:
        """Give a place to one of these tenants; None when there is none for any of them.  Give it back afterwards."""
        with self._lock:
            free = self._places - self._in_places.total()
            may = [each for each in tenants if free > (self._kept_free if self._running[each] else 0)]
            if not may:
                return None
            chosen = min(may, key=lambda each: (self._running[each], self._served.get(each, 0)))
            self._in_places[chosen] += 1
            self._begin(chosen)
            return chosen

    def give_back(self, tenant_id: str) -> None:
        """The execution in the place is over, or there was none."""
        with self._lock:
            self._drop(self._in_places, tenant_id)
            self._drop(self._running, tenant_id)

    def begin_beside(self, tenant_id: str) -> None:
        """An execution of the tenant begins beside the places, because somebody waits for it."""
        with self._lock:
            self._begin(tenant_id)

    def end_beside(self, tenant_id: str) -> None:
        """That execution is over."""
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
