"""How many executions of a tenant wait for their turn or their time, and may; how many may descend from one."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ConcurrencyLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import REFUSALS
from appliance.processes.engine.store import OPEN

RETRY_SECONDS = 5
FRESH_SECONDS = 0.5
_MOST_TENANTS = 1_000  # counts that are remembered
_WAITED_FOR = {False: "their turn", True: "their turn or their time (run_at)"}


class QueueFull(ConcurrencyLimited):
    """As many executions of the tenant wait for their turn or their time as may; in a while there is room again."""


@dataclass
class Bounds:
    """Queued executions of a tenant, and unfinished descendants of one execution, at most.

    What is planned for later is accepted only while queued and planned executions together are within `queued`: what waits for
    its time keeps nothing from being queued now, and what comes due a moment later is no way around the bound.
    """

    queued: int = 10_000
    descendants: int = 1_000


@dataclass
class _Count:
    """What was counted, when, and how many have come since."""

    counted: int
    at: float
    since: int = 0


bounds = Bounds()
_counts: dict[tuple[str, bool], _Count] = {}  # by tenant, and whether planned ones are counted too


def configure(*, queued: int, descendants: int) -> None:
    """Set the bounds of this process, and forget what was counted before."""
    bounds.queued, bounds.descendants = queued, descendants
    _counts.clear()


def admit_queued(scope: TenantScope) -> None:
    """Count an execution that is to be queued: QueueFull when too many of the tenant wait for their turn.

    Rows are counted at most twice a second; what is added in between is counted in memory.
    """
    _admit(scope, with_planned=False)


def admit_planned(scope: TenantScope) -> None:
    """Count an execution that is to be queued later: QueueFull when too many of the tenant wait for their turn or their time."""
    _admit(scope, with_planned=True)


def _admit(scope: TenantScope, *, with_planned: bool) -> None:
    which = scope.tenant_id, with_planned
    known, now = _counts.get(which), clock.monotonic()
    is_fresh = known is not None and now - known.at < FRESH_SECONDS
    if known is None or not is_fresh or (known.counted < bounds.queued <= known.counted + known.since):
        known = _Count(_count_queued(scope, with_planned=with_planned), now)
        if len(_counts) >= _MOST_TENANTS:
            _counts.clear()
        _counts[which] = known
    if known.counted + known.since >= bounds.queued:
        REFUSALS.inc(1, "queued_executions")
        raise QueueFull(
            Sentence(
                "%(queued)s executions of this tenant wait for %(waited_for)s, which is its limit "
                "(limits.queued_executions); execute it again when some have run, or cancel what is not needed",
                queued=bounds.queued, waited_for=_WAITED_FOR[with_planned],
            ),
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    known.since += 1


def _count_queued(scope: TenantScope, *, with_planned: bool) -> int:
    statuses = "('queued', 'scheduled')" if with_planned else "('queued')"
    sql = f"SELECT count(*) FROM (SELECT 1 FROM execution WHERE tenant_id = ? AND status IN {statuses} LIMIT ?) AS waiting"  # noqa: S608
    return int(db.rows(sql, (scope.tenant_id, bounds.queued))[0][0])


def admit_descendant(scope: TenantScope, root: str) -> None:
    """ConcurrencyLimited when too many descendants of `root` are not finished for one more."""
    sql = (
        "SELECT count(*) FROM (SELECT 1 FROM execution WHERE tenant_id = ? AND root = ? AND root IS NOT NULL "
        "AND finished_at IS NULL LIMIT ?) AS living"
    )
    ((living,),) = db.rows(sql, (scope.tenant_id, root, bounds.descendants))
    if living >= bounds.descendants:
        REFUSALS.inc(1, "descendants")
        raise ConcurrencyLimited(
            Sentence(
                "%(descendants)s executions that descend from %(root)s are not finished, which is the limit "
                "(limits.execution_descendants); does a process execute itself without end? Wait for some before you "
                "start more",
                descendants=bounds.descendants, root=root,
            ),
            headers={"Retry-After": str(RETRY_SECONDS)},
        )


def queue_state(scope: TenantScope, workers: int) -> dict[str, int]:
    """Depth, age of the oldest, work in flight, and how far the workers are behind."""
    now = clock.now_ms()
    rows = db.rows(
        # Each state by itself: the index over states is used for one, not for a list of them.
        " UNION ALL ".join(
            f"SELECT '{each}', count(*), min(enqueued_at) FROM execution WHERE tenant_id = ? AND status = '{each}'"  # noqa: S608
            for each in OPEN
        ),
        (scope.tenant_id,) * len(OPEN),
    )
    count = {row[0]: row[1] for row in rows}
    oldest = next((now - row[2] for row in rows if row[0] == "queued" and row[2] is not None), 0)
    return {
        "depth": count.get("queued", 0), "oldest_age_ms": max(0, oldest),
        "in_flight": count.get("running", 0) + count.get("cancelling", 0), "waiting": count.get("waiting", 0),
        "scheduled": count.get("scheduled", 0), "workers": workers, "lag_ms": max(0, oldest),
    }  # fmt: skip
