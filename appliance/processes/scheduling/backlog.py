"""Limits the number of queued and planned executions of a tenant, and of unfinished descendants of one execution."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.errors import ConcurrencyLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import REFUSALS
from appliance.processes.engine.store import OPEN

RETRY_SECONDS = 5
FRESH_SECONDS = 0.5
_WAITING_FOR = {False: "their turn", True: "their turn or their time (run_at)"}


class QueueFull(ConcurrencyLimited):
    """The tenant has the maximum number of queued or planned executions; a retry later may succeed."""


@dataclass
class Bounds:
    """The maximum number of queued executions of a tenant, and of unfinished descendants of one execution.

    A planned execution is accepted only while queued and planned ones together are below `queued`.  So planned executions
    never block those queued now, and planning them a moment ahead does not bypass the limit.
    """

    queued: int = 10_000
    descendants: int = 1_000


@dataclass
class _Count:
    """A count of rows, when it was taken (monotonic seconds), and how many were added since."""

    counted: int
    at: float
    since: int = 0


bounds = Bounds()
_counts: Cache[tuple[str, bool], _Count] = Cache(1_000)  # by tenant and whether planned executions are included


def configure(*, queued: int, descendants: int) -> None:
    """Sets the limits of this server process and clears the cached counts."""
    bounds.queued, bounds.descendants = queued, descendants
    _counts.clear()


def admit_queued(scope: TenantScope) -> None:
    """Counts an execution about to be queued; raises QueueFull when the tenant has too many queued ones.

    Rows are counted at most twice a second; additions in between are counted in memory.
    """
    _admit(scope, with_planned=False)


def admit_planned(scope: TenantScope) -> None:
    """Counts an execution planned for later; raises QueueFull when the tenant has too many queued and planned ones."""
    _admit(scope, with_planned=True)


def _admit(scope: TenantScope, *, with_planned: bool) -> None:
    key = scope.tenant_id, with_planned
    cached, now = _counts.get(key), clock.monotonic()
    is_fresh = cached is not None and now - cached.at < FRESH_SECONDS
    if cached is None or not is_fresh or (cached.counted < bounds.queued <= cached.counted + cached.since):
        cached = _Count(_count_queued(scope, with_planned=with_planned), now)
        _counts[key] = cached
    if cached.counted + cached.since >= bounds.queued:
        REFUSALS.inc(1, "queued_executions")
        raise QueueFull(
            Sentence(
                "%(queued)s executions of this tenant are waiting for %(waited_for)s, which is the limit "
                "(limits.queued_executions); try again when some have run, or cancel executions you do not need",
                queued=bounds.queued, waited_for=_WAITING_FOR[with_planned],
            ),
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    cached.since += 1


def _count_queued(scope: TenantScope, *, with_planned: bool) -> int:
    """The number of queued (and planned) executions, each counted up to the limit."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM execution WHERE tenant_id = ? AND status = '%s' LIMIT ?) AS waiting"
    # One query per status, as in `queue_state`.
    statuses = ("queued", "scheduled") if with_planned else ("queued",)
    return sum(int(db.rows(sql % status, (scope.tenant_id, bounds.queued))[0][0]) for status in statuses)


def admit_descendant(scope: TenantScope, root: str) -> None:
    """Raises ConcurrencyLimited when `root` already has the maximum number of unfinished descendants."""
    sql = (
        "SELECT count(*) FROM (SELECT 1 FROM execution WHERE tenant_id = ? AND root = ? AND root IS NOT NULL "
        "AND finished_at IS NULL LIMIT ?) AS living"
    )
    ((living,),) = db.rows(sql, (scope.tenant_id, root, bounds.descendants))
    if living >= bounds.descendants:
        REFUSALS.inc(1, "descendants")
        raise ConcurrencyLimited(
            Sentence(
                "%(descendants)s descendants of the execution %(root)s are unfinished, which is the limit "
                "(limits.execution_descendants); check whether a process executes itself endlessly, or wait until some "
                "have finished",
                descendants=bounds.descendants, root=root,
            ),
            headers={"Retry-After": str(RETRY_SECONDS)},
        )


def oldest_wait_ms(scope: TenantScope) -> int:
    """For how long the oldest execution has waited that nothing but a free worker keeps from running; 0 if there is none."""
    sql = "SELECT min(enqueued_at) FROM execution WHERE tenant_id = ? AND status = 'queued' AND wait_reason IS NULL"
    ((since,),) = db.rows(sql, (scope.tenant_id,))
    return 0 if since is None else max(0, clock.now_ms() - int(since))


def queue_state(scope: TenantScope, workers: int) -> dict[str, int]:
    """The queue of a tenant: depth, age of the oldest entry, executions in flight, and the workers' lag."""
    now = clock.now_ms()
    rows = db.rows(
        # One query per status, because the index on the status is not used for a list of them.
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
