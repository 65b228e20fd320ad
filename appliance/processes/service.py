"""The operations on processes and executions.  Each takes a TenantScope first."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from peewee import IntegrityError

from appliance.core import clock, pools
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.errors import ConcurrencyLimited, Conflict, Draining, ValidationFailed
from appliance.core.events import hub
from appliance.core.queue import TaskQueue
from appliance.core.scheduling import Scheduler
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import ApprovalClosed, answer_view, withdraw_approval
from appliance.llm import ProfileCreated
from appliance.sandbox import Pool
from appliance.tenants import starters
from appliance.tenants.grants import secret_bindings

from .at_once import FastLane, RunAtOnce, Waiter
from .definitions import versions
from .definitions.compiled import CompiledVersion
from .definitions.dependencies import load_dependencies
from .engine import completion, store, suspension
from .engine.children import ChildStarter, check_depth
from .engine.claims import claim_at_birth
from .engine.end_watch import EndWatch
from .engine.runner import Runner
from .engine.store import Claim
from .engine.task import StepServices
from .executions import pausing, retries
from .executions import service as executions
from .executions.record import ExecutionRecord
from .executions.retry_plan import PlanContext, RetryPlan, plan_retry
from .executions.service import MAX_LABEL, PRIORITIES, EventAnswer
from .executions.starting import ExecutionOrigin, StartRequest, insert_execution, new_running
from .host.agent_runs import NoAgents
from .host.deadlines import Deadlines
from .host.document_calls import StoredData
from .host.model_calls import no_models
from .host.ports import Ports
from .models import Execution, Process, ProcessVersion
from .scheduling import admission, backlog
from .scheduling.fair_share import FairShare
from .scheduling.fair_threads import FairThreadPool
from .scheduling.intake import MAX_MESSAGES, WAKE, Intake
from .scheduling.sweeper import Sweeper
from .scheduling.timers import Timers
from .startable import find_startable
from .triggers.firings import StartedExecution
from .triggers.registration import find_tenant_problems
from .triggers.service import TriggerDependencies, Triggers
from .triggers.signatures import Request

if TYPE_CHECKING:  # replays and tests are seldom, and their modules take a hundredth of the start
    from .rehearsal.dry_run import DryRun, DryRunRequest
    from .rehearsal.replay import Replay, ReplayRequest

log = logging.getLogger(__name__)
MAX_REPLAYS = 2  # each occupies an API thread until it is done


class ProcessFlow:
    """Processes and their executions in one running appliance."""

    def __init__(self, config: Config, presence: Presence, pool: Pool, queue: TaskQueue, ports: Ports) -> None:
        self.config = config
        self.pool = pool
        self._find_actions = ports.find_actions
        self._agents = ports.agents or NoAgents()
        self.queue = queue
        self._io = FairThreadPool(pools.IO)
        self._draining = threading.Event()
        self._replays = threading.BoundedSemaphore(MAX_REPLAYS)
        limits = config.limits
        self._deadlines = Deadlines(self._io.submit, limits.step_call_seconds)
        data = StoredData(ports.data, ports.documents, limits.step_answer_kb << 10)
        tools = StepServices(
            pool=pool, data=data, actions=ports.actions, submit_io=self._io.submit, submit_call=self._deadlines.submit,
            default_time_ms=limits.step_seconds * 1000, default_memory_mb=limits.step_memory_mb,
            output_bytes=limits.step_output_kb << 10, answer_bytes=limits.step_answer_kb << 10, host_calls=limits.step_host_calls,
            max_wait_ms=limits.waiting_days * 86_400_000, max_items=limits.execution_steps - 1, sealer=ports.sealer,
            children=ChildStarter(self._load, self._enqueue), documents=ports.documents,
            models=ports.models or no_models(ports.sealer), formats=ports.formats, agents=self._agents,
        )  # fmt: skip
        self._timers = Timers(self._wake_due)
        self._end_watch = EndWatch()
        self.runner = Runner(config, presence, tools, self._timers)
        self._fair_queue = FairShare(config.queue.workers)
        self._fast = FastLane(self.runner, self._fair_queue, self._most_at_once())
        self.intake = Intake(self.runner, self._fair_queue, queue, self._draining)
        self._sweeper = Sweeper(self.runner.orphans, self.runner.jumps, config.queue.sweep_ms, self.intake, queue)
        queue.declare(WAKE, self.intake.handle_message)
        starters.set_lookup("execution", executions.find_starter)
        self._unsubscribe: Callable[[], None] = lambda: None
        open_secret = partial(secret_bindings.open_for_webhook, ports.sealer)
        self.triggers = Triggers(pool, queue, TriggerDependencies(self._load, self._enqueue, open_secret, ports.polls))

    def start(self, scheduler: Scheduler) -> None:
        """Start what this process needs for its own callers, and with `server.run_workers` the sweeper and the queue's workers.

        The timers of a process without workers only queue what was planned or answered here when it is due.
        """
        self._unsubscribe = hub.subscribe(suspension.ExecutionAnswered, self._wake_answered)
        self.runner.jumps.now_ms()  # before looking for due work: the clock may have been set while the appliance was down
        self._timers.start(scheduler)
        self._deadlines.start(scheduler)
        self._end_watch.start(scheduler)
        self.triggers.changes.start()
        if self.config.server.run_workers:
            self.runner.start(scheduler)
            self._sweeper.start(scheduler)
            self.triggers.clockwork.start(scheduler)
            self.queue.start(self.config.queue.workers, scheduler)

    def stop(self, timeout: float) -> None:
        """Accept no new work and let executions in progress finish; the next start resumes those that take longer.

        Half of `timeout` (seconds) is for finishing, the other half for reaching the next commit.
        """
        deadline = clock.monotonic() + timeout
        self._draining.set()
        self._unsubscribe()
        self.triggers.stop()
        self._sweeper.stop()
        self._timers.stop()
        self.queue.stop(timeout / 2)
        self._fast.stop()
        self.runner.wait_idle(max(0.0, deadline - timeout / 2 - clock.monotonic()))
        self.runner.stop(max(0.0, deadline - clock.monotonic()))
        self.triggers.close()
        self._io.shutdown()
        self._deadlines.stop()
        self._end_watch.stop()

    def _load(self, scope: TenantScope, process_id: str, version: int) -> CompiledVersion:
        return self.runner.versions.load_to_run(scope, process_id, version)

    def _enqueue(self, tenant_id: str, execution_id: str, priority: int) -> None:
        self.intake.wake(tenant_id, execution_id, priority)

    def _wake(self, tenant_id: str, execution_id: str) -> None:
        """Inside a write: queue an execution that was recorded earlier, if it may run now."""
        if admission.queue_due(tenant_id, execution_id, self.runner.jumps.now_ms()):
            self.intake.wake(tenant_id, execution_id)

    def _wake_due(self, tenant_id: str, execution_id: str) -> None:
        db.submit(lambda: self._wake(tenant_id, execution_id)).add_done_callback(_log_lost)

    def _wake_answered(self, event: suspension.ExecutionAnswered) -> None:
        if (job := self.runner.active.get(event.execution_id)) is not None:
            job.note_answer()
        self._timers.at(clock.now_ms(), event.tenant_id, event.execution_id)

    # -- executions

    def start_execution(
        self, scope: TenantScope, process_id: str, request: StartRequest, *, waiter: Waiter | None = None,
        write_related: Callable[[], None] | None = None,
    ) -> Execution:  # fmt: skip
        """Record an execution durably and start it.

        If a caller waits for its end (`waiter`), it starts at once in this process if a slot is free.  `write_related` writes
        what a new execution's input refers to, in its transaction.
        """
        self._refuse_when_draining()
        startable = find_startable(scope, process_id, request.version)
        _check_request(request)
        compiled = self.runner.versions.load_startable(scope, process_id, startable)
        executions.check_input(scope, compiled, request.input)
        fast = waiter is not None and request.run_at is None and self._fast.take()
        claim: Claim | None = None
        birth = ExecutionOrigin(self.runner.presence.instance if fast else None, self.runner.lease(), depth=request.depth)

        def insert() -> tuple[Execution, bool]:
            row, new = insert_execution(scope, process_id, startable.version, request, birth)
            if new and write_related is not None:
                write_related()
            if waiter is not None and waiter.on_finished is not None and row.status not in store.FINISHED:
                db.after_commit(partial(completion.completion_signal.subscribe, scope.tenant_id, row.id, waiter.on_finished))
            if new and row.status == "queued" and row.wait_reason is None:
                self._enqueue(scope.tenant_id, row.id, row.priority)
            return row, new

        try:
            if waiter is not None and waiter.on_run is not None and fast and write_related is None:
                unrecorded = new_running(scope, process_id, startable, request, birth)
                if unrecorded is not None:
                    return self._fast.run_here(RunAtOnce.of(scope, unrecorded), compiled, waiter.on_run)
            row, new = db.write(insert, is_shared=write_related is None)
            if new and row.status == "running":
                claim = claim_at_birth(scope, row)
                self._fast.run_soon(claim, compiled)
        except IntegrityError as error:
            executions.explain_refusal(scope, process_id, startable.version, error)
        finally:
            if fast and claim is None:
                self._fast.release()
        if row.status == "scheduled" and row.next_run_at is not None:
            self._timers.at(row.next_run_at, scope.tenant_id, row.id)
        return row

    def read_input_schema(self, scope: TenantScope, process_id: str) -> Mapping[str, Any] | None:
        """The input schema of the published version, None without one; NotFound, NotPublished."""
        return self.runner.versions.load(scope, process_id, find_startable(scope, process_id, None).version).definition.input_schema

    def _refuse_when_draining(self) -> None:
        if self._draining.is_set():
            raise Draining("the appliance is stopping; try again in a moment", headers={"Retry-After": "5"})

    def cancel_execution(self, scope: TenantScope, execution_id: str, process_id: str | None = None) -> Execution:
        """Cancel an execution; one in progress stops at its next host call or step."""
        return db.write(lambda: executions.cancel_rows(scope, execution_id, process_id))

    def resume_execution(self, scope: TenantScope, execution_id: str, process_id: str, answer: EventAnswer) -> Execution:
        """See `executions.answer_event`."""
        return db.write(lambda: executions.answer_event(scope, execution_id, process_id, answer))

    def answer_profile(self, event: ProfileCreated) -> None:
        """Inside the write that creates an LLM profile: resume the steps that wait for it and withdraw their approval requests."""
        for token in suspension.answer_profile(event.scope, event.slug):
            withdraw_approval(event.scope, token, "the LLM profile has been created")

    def answer_approval(self, event: ApprovalClosed) -> None:
        """Inside the write that decides an approval: hand the decision to the step that asked for it."""
        suspension.answer_call(event.scope, event.approval.id, True, answer_view(event.approval))

    def retry_execution(
        self, scope: TenantScope, execution_id: str, *, start_from: str = "failed", published: bool = False,
        process_id: str | None = None, token: str = "",
    ) -> Execution:  # fmt: skip
        """Start a new execution with the input of a failed one, reusing its finished steps."""
        return self._retry(scope, executions.get_execution(scope, execution_id, process_id), start_from, published, token, False)

    def retry_once(self, scope: TenantScope, execution_id: str, token: str, *, published: bool = False) -> Execution:
        """Retry from the failed step.  The same token answers the same execution; Conflict if it was retried in another way."""
        return self._retry(scope, executions.get_execution(scope, execution_id), "failed", published, token, True)

    def _retry(self, scope: TenantScope, old: Execution, start_from: str, published: bool, token: str, once: bool) -> Execution:
        self._refuse_when_draining()
        version = executions.resolve_version(scope, old.process_id, None if published else old.version)
        compiled = self._load(scope, old.process_id, version)
        executions.check_input(scope, compiled, old.input)
        reused_runs = retries.reusable_runs(scope, old, start_from, compiled)
        request = StartRequest(old.input, version, None, old.priority, old.label_text, token)
        origin = ExecutionOrigin(retry_of=old.id, only_retry=once, depth=old.depth)

        def insert() -> Execution:
            row, new = insert_execution(scope, old.process_id, version, request, origin)
            if new:
                retries.record_retry(scope, old, row, reused_runs)
                self._enqueue(scope.tenant_id, row.id, row.priority)
            return row

        try:
            return db.write(insert)
        except IntegrityError as error:
            executions.explain_refusal(scope, old.process_id, version, error)

    def receive_webhook(self, tenant_id: str, request: Request, request_id: str, trace: str = "") -> StartedExecution:
        """See `Webhooks.receive`."""
        self._refuse_when_draining()
        return self.triggers.webhooks.receive(tenant_id, request, request_id, trace)

    def plan_retry(
        self, scope: TenantScope, execution_id: str, *, start_from: str = "failed", published: bool = False,
        process_id: str | None = None,
    ) -> RetryPlan:  # fmt: skip
        """Which steps `retry_execution` would reuse and run again, and which effects would be repeated; same errors."""
        old = executions.get_execution(scope, execution_id, process_id)
        version = executions.resolve_version(scope, old.process_id, None if published else old.version)
        compiled = self.runner.versions.load(scope, old.process_id, version)
        executions.check_input(scope, compiled, old.input)
        record = ExecutionRecord(scope, old, self.runner.versions.load(scope, old.process_id, old.version))
        return plan_retry(record, compiled, PlanContext(partial(self._find_actions, scope), self._agents), start_from, version)

    def replay_execution(
        self, scope: TenantScope, execution_id: str, request: "ReplayRequest", process_id: str | None = None
    ) -> "Replay":
        """Run a finished execution again from its journal, without any effect, and compare the results.

        Conflict while it is not finished, TimedOut after `limits.replay_seconds`, ConcurrencyLimited while too many other
        replays or tests are running.
        """
        from .rehearsal.replay import load_draft, replay

        row = executions.get_execution(scope, execution_id, process_id)
        if row.status not in store.FINISHED:
            raise Conflict(Sentence("the execution is %(status)s; it can be replayed once it is finished", status=row.status))
        own = self.runner.versions.load(scope, row.process_id, row.version)
        load, version = self.runner.versions.load, request.version or row.version
        compiled = load_draft(scope, row.process_id) if request.draft else load(scope, row.process_id, version)
        executions.check_input(scope, compiled, row.input)
        with self._replaying():
            return replay(self.runner.tools, ExecutionRecord(scope, row, own), compiled, request, self.config.limits.replay_seconds)

    @contextmanager
    def _replaying(self) -> Iterator[None]:
        if not self._replays.acquire(blocking=False):
            message = Sentence("%(most_replays)s replays or tests are running; try again in a moment", most_replays=MAX_REPLAYS)
            raise ConcurrencyLimited(message, headers={"Retry-After": "5"})
        try:
            yield
        finally:
            self._replays.release()

    def test_process(self, scope: TenantScope, process_id: str, request: "DryRunRequest", *, offline: bool = False) -> "DryRun":
        """Run the draft, or a version, without any effect: as a whole, or one step of it.

        `test_process(scope, "order-intake", DryRunRequest(input={…}, mocks={"push": {"output": {…}}}))` answers a DryRun:
        `status`, `output`, `error`, `steps` (each with `run`, `calls` and `logs`), `effects` (what would have been done) and
        `unused_mocks`.  DataPool and integrations are really read unless a mock replaces the read; every other call is
        answered by a mock, the step's own `mock`, a pinned output, or a stand-in marked as such.  `offline`: integrations
        are not read either.  Must not be called inside a write.

        NotFound, DefinitionInvalid (the draft cannot be parsed), ValidationFailed (input, step, mocks, context),
        TimedOut after `limits.replay_seconds`, ConcurrencyLimited while too many others are running.
        """
        from .rehearsal.dry_run import run_dry
        from .rehearsal.dry_run_calls import RealSystems
        from .rehearsal.preview_actions import PreviewOnlyActions
        from .rehearsal.replay import load_draft

        if request.version is None:
            compiled = load_draft(scope, process_id)
        else:
            compiled = self.runner.versions.load(scope, process_id, executions.resolve_version(scope, process_id, request.version))
        tools = self.runner.tools
        outside = RealSystems(tools.data, PreviewOnlyActions(tools.actions) if offline else tools.actions, self._load)
        with self._replaying():
            return run_dry(tools, outside, scope, compiled, request, self.config.limits.replay_seconds)

    # -- versions

    def publish_process(self, scope: TenantScope, process_id: str, request: versions.PublishRequest) -> ProcessVersion:
        """See `versions.publish_process`."""
        versions.raise_problems(find_tenant_problems(scope, versions.get_process(scope, process_id).definition))
        return versions.publish_process(scope, self._check_context(scope, thorough=False, tests=request.tests), process_id, request)

    def find_problems(self, scope: TenantScope, draft: versions.Draft, *, tests: bool = False) -> list[versions.Problem]:
        """Every problem of a draft; with `tests` also the failing cases of its test tables."""
        problems = versions.find_problems(self._check_context(scope, thorough=True, tests=tests), scope.tenant_id, draft)
        are_triggers_right = not any(problem.pointer.startswith("/triggers") for problem in problems)
        return problems + (find_tenant_problems(scope, draft.definition) if are_triggers_right else [])

    def _check_context(self, scope: TenantScope, *, thorough: bool, tests: bool) -> versions.CheckContext:
        return versions.CheckContext(
            self.pool, partial(load_dependencies, scope, self._find_actions, self._agents.output_of), thorough, tests
        )

    def pause_process(self, scope: TenantScope, process_id: str) -> Process:
        """Hold back new executions and triggers of the process; running executions continue."""
        return db.write(lambda: pausing.pause_rows(scope, process_id))

    def resume_process(self, scope: TenantScope, process_id: str) -> Process:
        """Release the executions that were held back, in order."""

        def resume() -> Process:
            row, held_back = pausing.resume_rows(scope, process_id)
            for execution_id in held_back[:MAX_MESSAGES]:
                self.intake.wake(scope.tenant_id, execution_id)
            return row

        return db.write(resume)

    def delete_process(self, scope: TenantScope, process_id: str, *, force: bool = False) -> None:
        """See `versions.delete_process`."""
        versions.delete_process(scope, process_id, force=force)

    # -- monitoring

    def queue_state(self, scope: TenantScope) -> dict[str, int]:
        """See `backlog.queue_state`."""
        return backlog.queue_state(scope, self._most_at_once())

    def _most_at_once(self) -> int:
        """How many executions this process runs at once; 0 without workers."""
        return self.config.queue.workers if self.config.server.run_workers else 0


def _log_lost(future: "Future[None]") -> None:
    if isinstance(error := future.exception(), Exception):
        db.log_failure(log, error, "a wake-up was not recorded; the sweeper will pick up the execution")


def _check_request(request: StartRequest) -> None:
    if request.priority not in PRIORITIES:
        raise ValidationFailed("priority must be between -10 and 10", pointer="/priority")
    if request.label is not None and not 1 <= len(request.label) <= MAX_LABEL:
        raise ValidationFailed(Sentence("label must have 1 to %(max_label)s characters", max_label=MAX_LABEL), pointer="/label")
    check_depth(request.depth)
