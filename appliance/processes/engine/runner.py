"""The runner: claims an execution, performs what the engine decides and commits under the fencing token."""

import logging
import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any

import peewee

from appliance.core import clock, logs
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.errors import NotFound, Overloaded, StorageFull
from appliance.core.leases import Lease, LeaseLost, OrphanFinder
from appliance.core.pools import STEP
from appliance.core.scheduling import Scheduler
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.models import Execution
from appliance.processes.scheduling.clock_jumps import ClockJumps, move_durations
from appliance.processes.scheduling.fair_threads import FairThreadPool
from appliance.processes.scheduling.timers import Timers
from appliance.tenants.grants import grace_periods

from . import caching, compensation, store, transitions
from .attempts import Attempts
from .claims import claim_of
from .decide import FINISHED, Decision, History, Ready, contains_any
from .evaluation import fill
from .failures import StepFailed, make_error
from .heartbeat import Heartbeat
from .job import Job, Performed
from .store import Claim
from .task import StepServices
from .version_loader import VersionLoader

log = logging.getLogger(__name__)
RunningSteps = dict[Future[Performed], Ready]


class Runner:
    """Drives executions; thread-safe.  The fence ensures that only one `drive` per execution has effects."""

    def __init__(self, config: Config, presence: Presence, tools: StepServices, timers: Timers) -> None:
        self.config, self.presence = config, presence
        self.tools, self.timers = tools, timers
        self.attempts = Attempts(tools)
        self.versions = VersionLoader(grace_periods(config))
        self.active: dict[str, Job] = {}
        self._idle = threading.Condition()
        self._stopping = threading.Event()
        self.jumps = ClockJumps([move_durations, tools.agents.move_durations], self._wake_loops)
        self.orphans = OrphanFinder(
            store.LEASES, presence.instance, presence.is_alive, lambda key: key[1] in self.active,
            silent_seconds=config.queue.lease_seconds * 2 / 3,
        )  # fmt: skip
        self._heartbeat = Heartbeat(self.active, self.lease, config.queue.lease_seconds / 3)
        self._steps = FairThreadPool(STEP, config.queue.workers)

    def start(self, scheduler: Scheduler) -> None:
        self._heartbeat.start(scheduler)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no execution is in progress; False if one still is after `seconds`."""
        with self._idle:
            return self._idle.wait_for(lambda: not self.active, seconds)

    def stop(self, seconds: float) -> None:
        """Stop every execution in progress at its next commit; the next start resumes from there."""
        self._stopping.set()
        self._wake_loops()
        self.wait_idle(seconds)
        self._heartbeat.stop()
        self._steps.shutdown()

    def _wake_loops(self) -> None:
        """Wake the loops that wait for running steps, so that they check their state again."""
        for job in list(self.active.values()):
            job.note_answer()

    def lease(self) -> int:
        return clock.now_ms() + self.config.queue.lease_seconds * 1000

    # -- claim

    def drive(self, tenant_id: str, execution_id: str) -> None:
        """Run an execution until it finishes or waits; a repeated or late queue message has no effect."""
        claim = self.claim(tenant_id, execution_id)
        if claim is not None:
            self.run(claim)

    def claim(self, tenant_id: str, execution_id: str) -> Claim | None:
        """Claim the execution; None if it is finished, not due, or claimed by another worker."""
        scope = TenantScope(tenant_id, f"execution:{execution_id}")

        def claim_due() -> Claim | None:
            now = self.jumps.now_ms()  # before reading the row: it may move the row's times
            store.lock_execution(scope, execution_id)
            row = scope.find(Execution, id=execution_id)
            return None if row is None or not self._claimable(row, now) else self.claim_row(scope, row)

        return db.write(claim_due, is_shared=True)

    def claim_row(self, scope: TenantScope, row: Execution) -> Claim | None:
        """Inside a write: claim an execution that may run; None if another worker was faster."""
        row.started_at = row.started_at or clock.now_ms()  # stored, so that expressions see the same time after a crash
        changes, key = {"started_at": row.started_at}, (scope.tenant_id, row.id)
        if not store.LEASES.claim(key, row.fence, owner=self.presence.instance, until=self.lease(), changes=changes):
            return None
        store.add_event(scope, row.id, "running", {"status": "running"})
        return claim_of(scope, row, row.fence + 1)

    def _claimable(self, row: Execution, now: int) -> bool:
        if row.status == "queued":
            return row.wait_reason is None
        if row.status in ("waiting", "scheduled"):
            return row.next_run_at is not None and row.next_run_at <= now
        if row.status not in ("running", "cancelling"):
            return False
        lease = Lease((row.tenant_id, row.id), row.fence, row.owner, row.lease_until)
        return self.orphans.is_abandoned(lease, now)  # the sweeper handles an owner that hangs

    # -- the loop

    def run(self, claim: Claim, new: CompiledVersion | None = None) -> None:
        """Run a claimed execution; an unexpected exception fails it with the class `system`.

        `new`: its version, if it started a moment ago, so that there are no step runs to load. While its row is deferred, errors
        such as a full disk are raised: nobody would run it again.
        """
        job: Job | None = None
        with logs.log_context(execution_id=claim.execution_id, request_id=claim.request_id):
            try:
                job = self._open(claim, new)
                self.active[claim.execution_id] = job
                self._heartbeat.ensure_beating()
                self._loop(job)
            except LeaseLost:
                log.warning("lost the claim; another worker has it")
            except (StorageFull, Overloaded, NotFound, peewee.OperationalError) as error:
                # From the runner's own reads and writes: the disk is full, or the database gone or its connection lost.
                if claim.deferred is not None and not claim.deferred.is_durable:
                    raise
                db.log_failure(log, error, "the execution is interrupted; it resumes when its lease has expired")
            except Exception:
                if self._stopping.is_set():
                    log.info("stopped in the middle of a step; the next start resumes it")
                    store.record(claim)
                else:
                    log.exception("the runner failed")
                    self._fail_system(claim, job)
            finally:
                if self.active.get(claim.execution_id) is job:
                    self.active.pop(claim.execution_id, None)
                with self._idle:
                    self._idle.notify_all()

    def _open(self, claim: Claim, new: CompiledVersion | None) -> Job:
        compiled, refusal = self.versions.of_claim(claim) if new is None else (new, None)
        limit = compiled.definition.timeout_ms or self.config.limits.execution_minutes * 60_000
        apart = self.jumps.offset_ms
        job = Job(claim, compiled, self._load_history(claim, compiled) if new is None else History(compiled.definition), limit)
        job.refusal, job.clock_offset = refusal, apart
        if claim.compensation is not None:
            job.start_compensation(claim.compensation, job.history)
        if claim.cancel_requested:
            job.cancel.set()
        return job

    @staticmethod
    def _load_history(claim: Claim, compiled: CompiledVersion, final_status: str | None = None) -> History:
        history = History(compiled.definition, final_status or (claim.compensation or {}).get("status"))
        for run in store.load_runs(claim.scope, claim.execution_id):
            history.put(run)
        return history

    def _loop(self, job: Job) -> None:
        """Decide, perform and commit until the execution is finished or waits."""
        if job.claim.claims >= self.config.queue.max_claims:
            error = make_error("poisoned", "system", Sentence("claimed %(claims)s times without progress", claims=job.claim.claims))
            if not self._start_compensation(job, [], transitions.failed(error)):
                self._commit(job, [], compensation.fail(job, error))
                return
        if job.refusal is not None:
            self._commit(job, [], compensation.fail(job, job.refusal))
            return
        under_way: RunningSteps = {}
        finished: list[Performed] = []
        while True:
            if self._stopping.is_set():
                self._commit(job, [each for each in finished if each.run.status in FINISHED or each.result.suspending], None)
                return
            if any(each.result.is_open or each.result.suspending for each in finished):
                self._commit(job, finished, None)  # their results are only known after their commit
                finished = []
            now = self._follow_clock(job)
            for each in finished:
                job.history.put(each.run)
            decision = job.history.decide(now)
            end = self._end(job, decision)
            if end is not None and not under_way:
                if self._start_compensation(job, finished, end):
                    finished = []
                    continue
                self._commit(job, finished, end)
                return
            if finished and not self._hold(job, finished):
                self._commit(job, finished, None)
            finished = self._advance(job, decision, under_way) if end is None else self._wait_for_attempts(job, under_way, None)

    def _follow_clock(self, job: Job) -> int:
        """The wall clock.  If it was set since the history was read, waiting runs are read again with their moved times."""
        now = self.jumps.now_ms()
        if job.clock_offset != self.jumps.offset_ms:
            job.clock_offset = self.jumps.offset_ms
            self._read_waiting(job)
        return now

    @staticmethod
    def _read_waiting(job: Job) -> None:
        for run in store.load_runs(job.claim.scope, job.claim.execution_id):
            if run.status in ("waiting", "retrying"):
                job.history.put(run)

    def _start_compensation(self, job: Job, finished: list[Performed], end: transitions.Transition) -> bool:
        """Start compensation if there is something to undo before `end`; answers whether there is."""
        plan = compensation.plan_compensation(job, end)
        if plan is None:
            return False
        if finished:
            self._commit(job, finished, None)
        db.write(lambda: compensation.write_start(job.claim, plan, self.lease()))
        job.start_compensation(plan, self._load_history(job.claim, job.compiled, plan["status"]))
        return True

    def _advance(self, job: Job, decision: Decision, under_way: RunningSteps) -> list[Performed]:
        """Perform the next steps and return the finished attempts; none if a timer was due first."""
        busy = {(ready.step.path, ready.iteration) for ready in under_way.values()}
        abandoned = [self.attempts.abandon(run) for run in decision.give_up if (run.path, run.iteration) not in busy]
        closed = [self.attempts.close(job, each) for each in decision.close if not contains_any(each, busy)]
        if abandoned or closed:
            return abandoned + closed
        to_start = [ready for ready in decision.ready if (ready.step.path, ready.iteration) not in busy]
        if len(to_start) == 1 and not under_way and decision.wake_at is None:
            return [self.attempts.attempt(job, to_start[0])]
        for ready in to_start:
            under_way[self._steps.submit(job.claim.scope.tenant_id, partial(self.attempts.attempt, job, ready))] = ready
        return self._wait_for_attempts(job, under_way, decision.wake_at)

    def _wait_for_attempts(self, job: Job, under_way: RunningSteps, wake_at: int | None) -> list[Performed]:
        """The attempts that finish first; returns at the latest when a timer is due or a waiting step has an answer."""
        timeout = None if wake_at is None else max(0.0, (wake_at - clock.now_ms()) / 1000)
        futures: list[Future[Any]] = [*under_way, job.answer_signal]
        wait(futures, timeout, FIRST_COMPLETED)
        if job.answer_signal.done():
            job.answer_signal = Future()  # before reading the rows, so that a later answer is noticed again
            self._read_waiting(job)
        finished = [each for each in under_way if each.done()]
        for each in finished:
            del under_way[each]
        return [each.result() for each in finished]

    def _end(self, job: Job, decision: Decision) -> transitions.Transition | None:
        """How the runner leaves the execution, or None while there are steps to perform."""
        if job.compensation is not None:
            return self._end_compensation(job, decision)
        if job.cancel.is_set():
            return transitions.cancelled()
        failed = decision.failed
        is_timeout = failed is None or (failed.error or {}).get("failure_class") == "timeout"
        if job.remaining_ms() <= 0 and not decision.done and is_timeout:
            return transitions.timed_out(job.limit_ms)
        if failed is not None:
            return transitions.failed(dict(failed.error or {}))
        max_runs = self.config.limits.execution_steps
        if len(job.history.runs) > max_runs:
            return transitions.failed(
                make_error("too_many_steps", "validation", Sentence("an execution has at most %(most)s step runs", most=max_runs))
            )
        if decision.has_work:
            return None
        if decision.done:
            return self._finish(job, decision)
        return transitions.waiting(decision, job.history)

    @staticmethod
    def _end_compensation(job: Job, decision: Decision) -> transitions.Transition | None:
        """The same during compensation."""
        if job.remaining_ms() <= 0 and not decision.done:
            return compensation.conclude(job, transitions.timed_out(job.limit_ms).error)
        if decision.has_work:
            return None
        return compensation.conclude(job) if decision.done else transitions.waiting(decision, job.history)

    def _finish(self, job: Job, decision: Decision) -> transitions.Transition:
        """Succeed with the output of the step that stopped it, else of the definition, else of the last step."""
        template = job.compiled.definition.output
        now = clock.now_ms()
        if decision.stopped or template is None:
            return transitions.succeeded(decision.output, now, decision.stopped)
        try:
            return transitions.succeeded(fill(self.tools.pool, {"output": template}, job.names(""), now)["output"], now)
        except StepFailed as failed:
            return transitions.failed(failed.error, now)

    # -- commit

    def _hold(self, job: Job, finished: list[Performed]) -> bool:
        """Leave finished steps to the commit that inserts the execution's deferred row; False if there is none to come."""
        deferred = job.claim.deferred
        if deferred is None or deferred.is_durable:
            return False
        recorded = [job.with_undo_order(each) for each in finished]
        if not deferred.hold(lambda: self._write_steps(job, recorded, is_new=True)):
            return False
        for each in recorded:
            job.history.put(each.run)
        return True

    @staticmethod
    def _write_steps(job: Job, recorded: list[Performed], *, is_new: bool = False) -> None:
        """Inside a commit: write finished steps, and outputs to reuse."""
        for each in recorded:
            transitions.write_step(job.claim, each, is_new=is_new)
            cache = job.compiled.steps[each.run.path].cache
            if cache is not None and each.result.cache_digest is not None and each.run.status == "succeeded":
                caching.store_output(job.claim, each.result.cache_digest, each.run.output, cache.ttl_ms)

    def _commit(self, job: Job, performed: list[Performed], end: transitions.Transition | None) -> None:
        """Write the results of this round in one transaction under the fence."""
        claim = job.claim
        handler = None if end is None else compensation.prepare_handler(self.tools.children, job, end)

        def write() -> tuple[list[Performed], transitions.Transition | None, bool]:
            cancel_requested = is_new = False
            if end is not None:
                transitions.look_ahead(claim, end)
            if end is None or end.status == "waiting":
                cancel_requested = store.record_progress(claim, self.lease(), job.active_ms())
            elif not (is_new := transitions.insert_succeeded(claim, job.active_ms(), end)):
                store.check_fence(claim)
            recorded = [job.with_undo_order(self.attempts.perform_in_commit(job, each)) for each in performed]
            self._write_steps(job, recorded, is_new=is_new)
            is_cancelled = cancel_requested and end is not None and end.status == "waiting" and job.compensation is None
            final = transitions.cancelled() if is_cancelled else end
            if final is not None and final.status == "waiting":
                final = transitions.with_open_calls(claim, final, job.history)
            if final is not None:
                final = compensation.start_handler(claim, final, handler)
                transitions.write_transition(claim, job.active_ms(), final, is_new=is_new)
            return recorded, final, cancel_requested

        is_shared = handler is None and (end is None or end.error is None) and all(each.result.is_shared for each in performed)
        recorded, final, cancel_requested = db.write(write, is_shared=is_shared)
        job.lease_renewed = clock.monotonic()
        for each in recorded:
            job.history.put(each.run)
        if cancel_requested:
            job.cancel.set()
        if final is not None and final.next_run_at is not None:
            self.timers.at(final.next_run_at, claim.scope.tenant_id, claim.execution_id)

    def _fail_system(self, claim: Claim, job: Job | None) -> None:
        """Fail the execution; if there are steps to undo, release it so that another claim undoes them."""
        error = make_error("internal", "system", "the appliance failed while running this execution; its log has the reason")
        end = transitions.failed(error)
        plan = None if job is None else compensation.plan_compensation(job, end)
        if job is not None and job.compensation is not None:
            end = compensation.conclude(job, error)
        handler = None if job is None else compensation.prepare_handler(self.tools.children, job, end)

        if claim.deferred is not None:
            claim.deferred.drop_steps()

        def write() -> None:
            if plan is not None:
                compensation.write_start(claim, plan, self.lease())
                store.release(claim)
            else:
                transitions.write_transition(claim, claim.active_ms, compensation.start_handler(claim, end, handler))

        try:
            db.write(write)
        except LeaseLost:
            log.warning("the failed execution has been claimed by another worker")
