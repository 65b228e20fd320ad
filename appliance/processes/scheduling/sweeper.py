"""Recovers work that would otherwise be lost: executions of dead workers, lost wake-ups, due timers, expired executions."""

from typing import Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.changes import earliest
from appliance.core.leases import Lease, OrphanFinder
from appliance.core.leases.open_tenants import FENCED
from appliance.core.queue import TaskQueue
from appliance.core.scheduling import PeriodicJob, Rest, Scheduler
from appliance.processes.engine import store

from . import admission, fair_share
from .clock_jumps import ClockJumps

BATCH = 200


class Wakes(Protocol):
    """Wakes workers; both methods run inside a write."""

    def wake(self, tenant_id: str, execution_id: str) -> None: ...

    def wake_cancelled(self, tenant_id: str, execution_id: str) -> None: ...


class Sweeper:
    """A round reads a few small indexes and writes only when it found something."""

    def __init__(self, orphans: OrphanFinder, jumps: ClockJumps, interval_ms: int, wakes: Wakes, queue: TaskQueue) -> None:
        self._orphans, self._jumps = orphans, jumps
        self._wakes = wakes
        self._queue = queue
        self._job = PeriodicJob("sweeper", interval_ms / 1000, self._run, rest=Rest(next_due=_next_due))

    def start(self, scheduler: Scheduler) -> None:
        self._job.hasten()
        self._job.start(scheduler)

    def stop(self) -> None:
        self._job.stop()

    def _run(self) -> None:
        if self.sweep() >= BATCH:
            self._job.hasten()

    def sweep(self) -> int:
        """Runs one round; returns the size of its largest batch."""
        now = self._jumps.refresh()
        orphans, due, late = self._orphans.find(now, BATCH), self._find_due(now), admission.list_expired(now, BATCH)
        if orphans or due or late:
            db.write(lambda: self._recover(orphans, due, late))
        if not self._queue.has_messages(1) and fair_share.anything_ready():
            db.write(lambda: self._wakes.wake("", ""))  # one is enough: a worker that starts something wakes the next
        return max(len(orphans), len(due), len(late))

    @staticmethod
    def _find_due(now: int) -> list[tuple[str, str]]:
        rows = db.rows(
            "SELECT tenant_id, id FROM execution WHERE status IN ('waiting', 'scheduled') AND finished_at IS NULL "  # noqa: S608
            f"AND next_run_at <= ? AND tenant_id NOT IN ({FENCED}) ORDER BY next_run_at LIMIT ?",
            (now, BATCH),
        )
        return [(row[0], row[1]) for row in rows]

    def _recover(self, orphans: list[Lease], due: list[tuple[str, str]], late: list[tuple[str, str]]) -> None:
        now = self._jumps.now_ms()  # the clock may have been set since
        self._requeue(orphans)
        for tenant_id, execution_id in due:
            if admission.queue_due(tenant_id, execution_id, now):
                self._wakes.wake(tenant_id, execution_id)
        for tenant_id, execution_id in late:
            admission.expire(tenant_id, execution_id, now)

    def _requeue(self, orphans: list[Lease]) -> None:
        """Queues each again unless it has been claimed since; one that is being cancelled is announced by its id."""
        changes = {"enqueued_at": clock.now_ms()}
        for lost in orphans:
            if store.LEASES.reclaim(lost, changes):
                tenant_id, execution_id = lost.key
                ready = admission.is_ready(tenant_id, execution_id)
                (self._wakes.wake if ready else self._wakes.wake_cancelled)(tenant_id, execution_id)


def _next_due() -> int | None:
    """When a round next has something to do with the rows of now (epoch ms): a time in the past while any execution runs."""
    if store.LEASES.is_any_running():
        return 0
    return earliest(
        "SELECT MIN(next_run_at) FROM execution WHERE status IN ('waiting', 'scheduled') AND finished_at IS NULL",
        "SELECT MIN(expires_at) FROM execution WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL",
    )
