"""Renews the leases of running executions, and marks slow steps as running, while the runner waits for them."""

import logging
from collections.abc import Callable, Mapping

from appliance.core import clock
from appliance.core.database import db
from appliance.core.events import hub
from appliance.core.leases import LeaseLost
from appliance.core.scheduling import PROMPT, PeriodicJob, Scheduler

from . import store, suspension
from .decide import Key
from .job import Job, RunningAttempt

log = logging.getLogger(__name__)
TICK_SECONDS = 0.1
TICKS_PER_CANCEL_CHECK = 10
TICKS_PER_REST = 20  # so that a stream of short executions does not start it again for each
SLOW_AFTER_SECONDS = 0.3
REST_SECONDS = 3600.0


class Heartbeat:
    """Beats ten times a second while executions are active, and rests otherwise; quick steps are never touched by it."""

    def __init__(self, active: Mapping[str, Job], lease: Callable[[], int], every_seconds: float) -> None:
        self._active = active
        self._lease = lease
        self._every = every_seconds
        self._job = PeriodicJob("heartbeat", REST_SECONDS, self.tick, PROMPT)
        self._is_beating = False
        self._ticks = self._last_active = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self, scheduler: Scheduler) -> None:
        self._unsubscribe = hub.subscribe(suspension.CancelRequested, self._cancel)
        self._job.start(scheduler)

    def stop(self) -> None:
        self._unsubscribe()
        self._job.stop()

    def ensure_beating(self) -> None:
        """An execution has become active."""
        if not self._is_beating:
            self._is_beating = True
            self._job.run_within(TICK_SECONDS)

    def _cancel(self, event: suspension.CancelRequested) -> None:
        job = self._active.get(event.execution_id)
        if job is not None:
            job.cancel.set()

    def tick(self) -> None:
        """Look after every active execution, and plan the next tick."""
        self._ticks += 1
        if self._active:
            self._last_active = self._ticks
            if self._ticks % TICKS_PER_CANCEL_CHECK == 0:
                self._check_cancellations()
        for job in list(self._active.values()):
            try:
                self.beat(job)
            except LeaseLost:
                job.cancel.set()  # another worker has claimed it: the code stops at its next call, and its commit is refused
            except Exception as error:  # noqa: BLE001  logged there
                db.log_failure(log, error, "the heartbeat of %s failed; the next one will try again", job.claim.execution_id)
        self._is_beating = self._ticks - self._last_active < TICKS_PER_REST
        if self._active:  # Looked at after the assignment, because an execution that becomes active now relies on it.
            self._is_beating = True
        if self._is_beating:
            self._job.run_within(TICK_SECONDS)

    def _check_cancellations(self) -> None:
        """Stop executions of this process whose cancellation was requested through another process."""
        try:
            rows = db.rows("SELECT id FROM execution WHERE status = 'cancelling' AND finished_at IS NULL")
        except Exception:
            log.exception("could not look up executions to cancel; will try again")
            return
        for (execution_id,) in rows:
            self._cancel(suspension.CancelRequested(execution_id))

    def beat(self, job: Job) -> None:
        """Renew the lease, and store attempts that have been running for a while; LeaseLost if the claim is lost."""
        now = clock.monotonic()
        running = list(job.attempts.items())
        slow = {key: call for key, call in running if not call.is_shown and now - call.started >= SLOW_AFTER_SECONDS}
        if not slow and now - job.lease_renewed < self._every:
            return
        if db.write(lambda: self._record(job, slow), is_shared=True):
            job.cancel.set()
        job.lease_renewed = now
        for attempt in slow.values():
            attempt.is_shown = True

    def _record(self, job: Job, slow: Mapping[Key, RunningAttempt]) -> bool:
        """Inside a write: renew the lease and store the running attempts; answers whether a cancel was requested."""
        claim = job.claim
        is_cancel_requested = store.renew_lease(claim, self._lease(), job.active_ms())
        for key, attempt in slow.items():
            if job.attempts.get(key) is attempt:
                run = attempt.run
                store.save_run(claim.scope, claim.execution_id, run)
                event = {
                    "step": run.step,
                    "path": run.path,
                    "iteration": run.iteration,
                    "status": "running",
                    "attempt": run.attempt,
                }
                store.add_event(claim.scope, claim.execution_id, "step", event)
        return is_cancel_requested
