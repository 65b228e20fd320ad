"""Handles the queue messages of workers: a message is only a wake-up; the execution to run is chosen by fair sharing."""

from functools import partial
from threading import Event

from appliance.core import clock
from appliance.core.database import db
from appliance.core.queue import TaskQueue
from appliance.core.scope import TenantScope
from appliance.processes.engine.runner import Runner
from appliance.processes.engine.store import Claim
from appliance.processes.models import Execution

from . import admission, concurrency_quota, fair_share
from .fair_share import FairShare

WAKE = "execution"
MAX_MESSAGES = 64  # more are useless: each wakes one worker, and a worker that starts something wakes the next
IN_A_ROW = 16  # then other kinds of messages are handled
MOST_EXPIRED = 50  # in one write


class Intake:
    """Claims executions for the workers of this process; thread-safe.  Nothing is claimed once `draining` is set."""

    def __init__(self, runner: Runner, places: FairShare, queue: TaskQueue, draining: Event) -> None:
        self._runner = runner
        self._places = places
        self._queue = queue
        self._draining = draining

    def wake(self, tenant_id: str, execution_id: str, priority: int = 0) -> None:
        """Wakes a worker unless enough messages are queued already; inside a write."""
        if not self._queue.has_messages(MAX_MESSAGES):
            self._queue.enqueue(WAKE, tenant_id, execution_id, priority=priority)

    def wake_cancelled(self, tenant_id: str, execution_id: str) -> None:
        """Wakes a worker to end this execution, which is being cancelled and has no worker; inside a write."""
        self._queue.enqueue(WAKE, tenant_id, execution_id)

    def handle_message(self, tenant_id: str, execution_id: str) -> None:
        """Handles a message: ends the execution it names if that is being cancelled, then runs whatever is next."""
        sql = "SELECT 1 FROM execution WHERE tenant_id = ? AND id = ? AND status = 'cancelling'"
        if db.rows(sql, (tenant_id, execution_id)):
            self._runner.drive(tenant_id, execution_id)
        for _ in range(IN_A_ROW):
            claim = self.claim_next()
            if claim is None:
                return
            try:
                self._runner.run(claim)
            finally:
                self._places.release(claim.scope.tenant_id)
        db.write(lambda: self.wake(tenant_id, execution_id), is_shared=True)

    def claim_next(self) -> Claim | None:
        """Claims the next execution; None when none may start here now.  The caller gives its place back afterwards."""
        tried: set[str] = set()
        while not self._draining.is_set():
            ready = [each for each in fair_share.ready_tenants() if each not in tried and not concurrency_quota.is_full(each)]
            tenant_id = self._places.acquire(ready)
            if tenant_id is None:
                return None
            claim: Claim | None = None
            try:
                claim = db.write(partial(self._claim_first, tenant_id), is_shared=True)
            finally:
                if claim is None:
                    self._places.release(tenant_id)
            if claim is not None:
                return claim
            tried.add(tenant_id)  # Others were faster, or what was first has expired.
        return None

    def _claim_first(self, tenant_id: str) -> Claim | None:
        """Claims the tenant's first execution that has not expired, unless it runs as many as it may."""
        if not concurrency_quota.take_place(TenantScope(tenant_id, "system")):
            return None
        for _ in range(MOST_EXPIRED):
            execution_id = fair_share.first_ready(tenant_id)
            scope = TenantScope(tenant_id, f"execution:{execution_id}")
            row = None if execution_id is None else scope.get(Execution, id=execution_id)
            if row is None:
                return None
            if row.expires_at is not None and admission.expire(tenant_id, row.id, clock.now_ms()):
                continue
            claim = self._runner.claim_row(scope, row)
            if not self._queue.has_messages(1) and fair_share.anything_ready():
                self.wake(tenant_id, row.id)
            return claim
        self.wake(tenant_id, "")  # for those behind the expired ones
        return None
