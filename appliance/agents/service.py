"""Starts and wakes agent runs, hands them to worker threads, and recovers runs whose worker was lost."""

import logging
from collections.abc import Callable
from functools import partial

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.changes import earliest
from appliance.core.database.presence import Presence
from appliance.core.errors import Draining
from appliance.core.events import hub
from appliance.core.leases import Lease
from appliance.core.leases.open_tenants import FENCED
from appliance.core.pools import AGENT
from appliance.core.queue import TaskQueue
from appliance.core.scheduling import PROMPT, PeriodicJob, Rest, Scheduler
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ApprovalClosed
from appliance.processes.engine import CallWithdrawn
from appliance.processes.scheduling import FairThreadPool
from appliance.tenants import starters

from . import runs, store
from .run_segment import RunDependencies
from .runner import Runner
from .runs import Run, RunRequest
from .steps import AgentSteps

log = logging.getLogger(__name__)
WAKE = "agent_run"
_BATCH = 200
_LOST_AFTER_MS = 2_000


class AgentRuns:
    """The runs of agents in one running appliance."""

    def __init__(self, config: Config, presence: Presence, queue: TaskQueue, dependencies: RunDependencies) -> None:
        self.runner = Runner(presence, dependencies, config.queue.lease_seconds)
        self._queue = queue
        self._threads = FairThreadPool(AGENT)
        self._upkeep = [
            PeriodicJob("agent-sweep", config.queue.sweep_ms / 1000, self.sweep, rest=Rest(next_due=_next_due)),
            PeriodicJob("agent-leases", config.queue.lease_seconds / 3, self.runner.renew_leases, PROMPT),
        ]
        self._submitted: set[str] = set()  # runs submitted to a thread that has not started them yet
        self._is_draining = False
        self.steps = AgentSteps(lambda tenant_id, run_id: queue.enqueue(WAKE, tenant_id, run_id))
        queue.declare(WAKE, self._serve)
        starters.set_lookup("run", runs.find_starter)

    def start(self, scheduler: Scheduler) -> None:
        for each in self._upkeep:
            each.start(scheduler)

    def stop(self, seconds: float) -> None:
        """Accept no new runs; active ones stop at their next step and continue after the next start."""
        self._is_draining = True
        for each in self._upkeep:
            each.stop()
        self.runner.stop(seconds)
        self._threads.shutdown()

    def listen(self) -> Callable[[], None]:
        """Subscribe to closed approvals and withdrawn calls; returns how to unsubscribe."""
        ends = (
            hub.subscribe(ApprovalClosed, self.resume_after_approval),
            hub.subscribe(CallWithdrawn, self.steps.withdraw),
        )

        def forget() -> None:
            for end in ends:
                end()

        return forget

    def start_run(self, scope: TenantScope, agent_id: str, request: RunRequest) -> Run:
        """Queue a run of the agent.  Raises NotFound, ValidationFailed, IdempotencyMismatch, Draining."""
        if self._is_draining:
            raise Draining("the appliance is stopping; start the run again in a moment")

        def write() -> Run:
            run, is_new = runs.insert_run(scope, agent_id, request)
            if is_new:
                self._queue.enqueue(WAKE, scope.tenant_id, run.id)
            return run

        return db.write(write)

    def resume_after_approval(self, event: ApprovalClosed) -> None:
        """Wake the runs that wait for this approval.  Called inside the transaction that records the decision."""
        for run_id in store.list_runs_waiting_for(event.scope, event.approval.id):
            if store.wake(event.scope.tenant_id, run_id):
                self._queue.enqueue(WAKE, event.scope.tenant_id, run_id)

    def _serve(self, tenant_id: str, run_id: str) -> None:
        """Handle a queue message.  Each run gets its own thread, so slow models do not hold up executions."""
        if not self._is_draining and run_id not in self._submitted:
            self._submitted.add(run_id)
            self._threads.submit(tenant_id, partial(self._drive, tenant_id, run_id))

    def _drive(self, tenant_id: str, run_id: str) -> None:
        self._submitted.discard(run_id)  # first, because a wake-up from now on must drive the run again
        try:
            self.runner.drive(tenant_id, run_id)
        except Exception:
            log.exception("could not drive the run %s; the sweeper will retry it", run_id)

    def sweep(self) -> int:
        """Requeue runs that are due, whose worker is gone, or whose queue message was lost; returns how many."""
        orphans, due = self.runner.orphans.find(clock.now_ms(), _BATCH), self._due()
        if orphans or due:
            db.write(partial(self._requeue, orphans, due))
        return len(orphans) + len(due)

    def _due(self) -> list[tuple[str, str]]:
        now = clock.now_ms()
        sql = (
            "SELECT tenant_id, id FROM agent_run WHERE status = 'waiting' AND next_run_at <= ? "  # noqa: S608
            f"AND tenant_id NOT IN ({FENCED}) ORDER BY next_run_at LIMIT ?"
        )
        due = [(row[0], row[1]) for row in db.rows(sql, (now, _BATCH))]
        if self._queue.has_messages(1):
            return due
        lost = (
            "SELECT tenant_id, id FROM agent_run WHERE status = 'queued' AND created_at < ? "  # noqa: S608
            f"AND tenant_id NOT IN ({FENCED}) ORDER BY created_at LIMIT ?"
        )
        rows = db.rows(lost, (now - _LOST_AFTER_MS, _BATCH))
        return due + [(row[0], row[1]) for row in rows if row[1] not in self._submitted]

    def _requeue(self, orphans: list[Lease], due: list[tuple[str, str]]) -> None:
        for tenant_id, run_id in [*(lost.key for lost in orphans if store.LEASES.reclaim(lost)), *due]:
            store.wake(tenant_id, run_id)
            self._queue.enqueue(WAKE, tenant_id, run_id)


def _next_due() -> int | None:
    """When a sweep next has something to do with the rows of now (epoch ms): a time in the past while any run is driven."""
    if store.LEASES.is_any_running():
        return 0
    return earliest(
        "SELECT MIN(next_run_at) FROM agent_run WHERE status = 'waiting'",
        f"SELECT MIN(created_at) + {_LOST_AFTER_MS} FROM agent_run WHERE status = 'queued'",  # noqa: S608
    )
