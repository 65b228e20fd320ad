"""The only loop: claims an execution, performs what the engine decides, commits under the fence."""

import logging
import random
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from appliance.core import clock, db, logs
from appliance.core.config import Config
from appliance.core.errors import ApplianceError
from appliance.core.presence import Presence
from appliance.core.scope import TenantScope

from . import outcome, store
from .compiled import Compiled, CompiledVersions, compile_version
from .engine import Close, Decision, History, Ready, StepRun
from .evaluation import fill, is_true
from .failing import StepFailed, from_coded, make_error
from .journal import Cancelled
from .models import Execution, ProcessVersion
from .steps import for_each, perform
from .store import Claim, Fenced
from .task import Result, Task, Tools
from .timers import Timers

log = logging.getLogger(__name__)
LOST_RETRIES = 5
LOST_DELAY_MS = 100


@dataclass
class Job:
    """One claimed execution in this process."""

    claim: Claim
    compiled: Compiled
    history: History
    began: float
    cancel: threading.Event
    saved_runs: int = 0

    def active_ms(self) -> int:
        return self.claim.active_ms + int((clock.monotonic() - self.began) * 1000)

    def left_ms(self) -> int:
        return (self.compiled.definition.timeout_ms or 0) - self.active_ms()


@dataclass(frozen=True)
class Performed:
    """A finished attempt, ready to be committed."""

    run: StepRun
    result: Result


class Runner:
    """Drives executions; thread-safe, one call of `drive` per execution at a time is enforced by the fence."""

    def __init__(self, config: Config, presence: Presence, tools: Tools, timers: Timers) -> None:
        self.config = config
        self.presence = presence
        self.tools = tools
        self.timers = timers
        self.compiled = CompiledVersions()
        self.active: dict[str, Job] = {}
        self._steps = ThreadPoolExecutor(config.queue.workers * 4, thread_name_prefix="step")

    def stop(self) -> None:
        """Ask every execution in progress to stop at its next commit; the next start goes on from there."""
        self._steps.shutdown(wait=False, cancel_futures=True)

    def lease(self) -> int:
        return clock.now_ms() + self.config.queue.lease_seconds * 1000

    # -- claim

    def drive(self, tenant_id: str, execution_id: str) -> None:
        """Run an execution as far as it goes; a message that comes twice or too late does nothing."""
        claim = self.claim(tenant_id, execution_id)
        if claim is not None:
            self.run(claim)

    def claim(self, tenant_id: str, execution_id: str) -> Claim | None:
        """The right to run it, unless it is finished, not due, or in other hands."""
        scope = TenantScope(tenant_id, f"execution:{execution_id}")

        def take() -> Claim | None:
            row = scope.find(Execution, id=execution_id)
            if row is None or not self._claimable(row):
                return None
            if not store.claim(scope, execution_id, self.presence.instance, row.fence, self.lease()):
                return None
            store.add_event(scope, execution_id, "running", {"status": "running"})
            return claim_of(scope, row)

        return db.write(take)

    def _claimable(self, row: Execution) -> bool:
        now = clock.now_ms()
        if row.status == "queued":
            return True
        if row.status in ("waiting", "scheduled"):
            return row.next_run_at is not None and row.next_run_at <= now
        if row.status not in ("running", "cancelling"):
            return False
        if row.owner == self.presence.instance:
            return row.id not in self.active
        return row.owner is None or row.lease_until < now or not self.presence.is_alive(row.owner)

    def load(self, scope: TenantScope, process_id: str, version: int) -> Compiled:
        """The version, compiled; kept for the next execution."""
        key = (scope.tenant_id, process_id, version)
        found = self.compiled.get(key)
        if found is None:
            row = scope.get(ProcessVersion, process_id=process_id, version=version)
            found = compile_version(scope.tenant_id, row.definition, row.files)
            self.compiled.put(key, found)
        return found

    # -- the loop

    def run(self, claim: Claim) -> None:
        """Run a claimed execution; whatever goes wrong in the appliance itself ends it as `system`, never silently."""
        with logs.log_context(execution_id=claim.execution_id, request_id=claim.request_id):
            try:
                job = self._open(claim)
                self.active[claim.execution_id] = job
                self._loop(job)
            except Fenced:
                log.warning("lost the claim; another worker has it")
            except Exception:
                log.exception("the runner failed")
                self._fail_system(claim)
            finally:
                self.active.pop(claim.execution_id, None)

    def _open(self, claim: Claim) -> Job:
        compiled = self.load(claim.scope, claim.process_id, claim.version)
        history = History(compiled.definition)
        if claim.fence > 1:
            for run in store.load_runs(claim.scope, claim.execution_id):
                history.put(run)
        return Job(claim, compiled, history, clock.monotonic(), threading.Event(), len(history.runs))

    def _loop(self, job: Job) -> None:
        """Decide, perform, commit, until the execution is finished or waits."""
        if job.claim.claims >= self.config.queue.max_claims:
            error = make_error("poisoned", "system", f"claimed {job.claim.claims} times without progress")
            self._commit(job, [], outcome.failed(error))
            return
        under_way: dict[Future[Performed], Ready] = {}
        finished: list[Performed] = []
        if job.claim.cancel_requested:
            job.cancel.set()
        while True:
            if any(each.result.in_commit for each in finished):
                self._commit(job, finished, None)  # what these steps come to is known only after their commit
                finished = []
            for each in finished:
                job.history.put(each.run)
            decision = job.history.decide(clock.now_ms())
            end = self._end(job, decision)
            if end is not None and not under_way:
                self._commit(job, finished, end)
                return
            if finished:
                self._commit(job, finished, None)
                finished = []
            if end is not None:
                finished = self._next(under_way)
                continue
            busy = {(r.step.path, r.iteration) for r in under_way.values()}
            ready = [r for r in decision.ready if (r.step.path, r.iteration) not in busy]
            if decision.close:
                finished = [self._close(job, each) for each in decision.close]
            elif len(ready) == 1 and not under_way:
                finished = [self._attempt(job, ready[0])]
            else:
                for each in ready:
                    under_way[self._steps.submit(self._attempt, job, each)] = each
                finished = self._next(under_way)

    @staticmethod
    def _next(under_way: dict[Future[Performed], Ready]) -> list[Performed]:
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            del under_way[future]
        return [future.result() for future in done]

    def _end(self, job: Job, decision: Decision) -> outcome.Ending | None:
        """How this visit ends, or None while there is something to perform."""
        if job.cancel.is_set():
            return outcome.cancelled()
        if decision.failed is not None:
            return outcome.failed(dict(decision.failed.error or {}))
        if job.compiled.definition.timeout_ms is not None and job.left_ms() <= 0 and not decision.done:
            return outcome.timed_out(job.compiled.definition.timeout_ms)
        if len(job.history.runs) > self.config.limits.execution_steps:
            return outcome.failed(
                make_error("too_many_steps", "validation", f"more than {self.config.limits.execution_steps} step runs")
            )
        if decision.ready or decision.close:
            return None
        if decision.done:
            return self._finish(job, decision.output)
        return outcome.waiting(decision, job.history)

    def _finish(self, job: Job, last: Any) -> outcome.Ending:
        """The process's own output, or its last step's."""
        template = job.compiled.definition.output
        try:
            names = self._names(job, None, "")
            return outcome.succeeded(
                last if template is None else fill(self.tools.pool, {"output": template}, names, clock.now_ms())["output"]
            )
        except StepFailed as failed:
            return outcome.failed(failed.error)

    # -- one attempt

    def _attempt(self, job: Job, ready: Ready) -> Performed:
        """Evaluate, perform, and turn every failure into a step run."""
        step, before = ready.step, ready.run
        now = clock.now_ms()
        run = StepRun(
            step.path, ready.iteration, step.id, step.kind, "running", before.attempt if before else 1,
            started_at=before.started_at if before and before.started_at else now,
        )  # fmt: skip
        with logs.log_context(execution_id=job.claim.execution_id, step=step.path):
            try:
                result = self._perform(job, ready, run, now)
            except Cancelled:
                return Performed(replace(run, status="cancelled", finished_at=clock.now_ms()), Result(status="cancelled"))
            except StepFailed as failed:
                return self._failed(ready, run, failed)
            except ApplianceError as error:
                return self._failed(ready, run, from_coded(error))
        return Performed(run, result) if result.in_commit else self._record(run, result)

    def _perform(self, job: Job, ready: Ready, run: StepRun, now: int) -> Result:
        step = ready.step
        names = self._names(job, ready, ready.iteration)
        if step.when is not None:
            filled = fill(self.tools.pool, {"when": step.when}, names, now)
            if not is_true(filled["when"]):
                return Result(status="skipped")
        templates = {name: t for name, t in step.templates.items() if name != "expression"}
        filled = fill(self.tools.pool, templates, names, now)
        run.input = _shown_input(step.kind, filled, job.claim.input)
        left = job.left_ms() if job.compiled.definition.timeout_ms else 15 * 60_000
        task = Task(
            step, ready.iteration, run.attempt, job.claim, job.compiled, names, filled,
            filled.get("step_input", job.claim.input), now, max(1, left), job.cancel.is_set,
        )  # fmt: skip
        return perform(self.tools, task)

    def _record(self, run: StepRun, result: Result) -> Performed:
        """The step run after an attempt that did not fail; an output that is too large fails it."""
        if result.status == "succeeded":
            size = len(db.dump_json(result.output)) if result.output is not None else 0
            if size > self.tools.output_bytes:
                error = make_error(
                    "output_too_large", "validation", f"the output has {size} bytes; at most {self.tools.output_bytes} are kept"
                )
                return Performed(replace(run, status="failed", error=_located(error, run), finished_at=clock.now_ms()), result)
        closed = result.status in ("succeeded", "skipped")
        return Performed(
            replace(
                run, status=result.status, output=result.output, state=result.state, next_run_at=result.next_run_at,
                finished_at=clock.now_ms() if closed else None,
            ),
            result,
        )  # fmt: skip

    def _failed(self, ready: Ready, run: StepRun, failed: StepFailed) -> Performed:
        """Retrying, when the step's policy says so; a lost sandbox process is always tried again."""
        result = Result(status="failed", logs=failed.logs, journal=failed.journal)
        error = _located(failed.error, run)
        now = clock.now_ms()
        delay = _retry_delay(ready, run.attempt, failed.error)
        if delay is None:
            return Performed(replace(run, status="failed", error=error, finished_at=now), result)
        return Performed(replace(run, status="retrying", attempt=run.attempt + 1, error=error, next_run_at=now + delay), result)

    def _close(self, job: Job, close: Close) -> Performed:
        """Finish a branch, a for_each or a wait whose time has come."""
        run = replace(close.run, status="succeeded", output=close.output, finished_at=clock.now_ms())
        if close.step.kind == "for_each":
            names = self._names(job, None, close.iteration, close.step.path)
            task = Task(
                close.step, close.iteration, run.attempt, job.claim, job.compiled, names, {}, None, clock.now_ms(), 1,
                job.cancel.is_set,
            )  # fmt: skip
            try:
                run.output = for_each.collect(self.tools, task, job.history, close.run, close.output)
            except StepFailed as failed:
                run = replace(run, status="failed", output=None, error=_located(failed.error, run))
        return (
            self._record(run, Result(output=run.output, state=run.state)) if run.status == "succeeded" else Performed(run, Result())
        )

    # -- names

    def _names(self, job: Job, ready: Ready | None, iteration: str, path: str | None = None) -> dict[str, Any]:
        """What expressions and code see."""
        claim = job.claim
        names: dict[str, Any] = {
            "input": claim.input,
            "steps": job.history.outputs_for(iteration),
            "execution": {
                "id": claim.execution_id, "process_id": claim.process_id, "version": claim.version, "label": claim.label,
                "created_at": clock.rfc3339(claim.created_at), "started_at": clock.rfc3339(claim.started_at),
            },
            "tenant": {"id": claim.scope.tenant_id},
        }  # fmt: skip
        where = ready.step.path if ready else path
        if iteration and where:
            names |= _item_names(job, where, iteration)
        return names

    # -- commit

    def _commit(self, job: Job, performed: list[Performed], end: outcome.Ending | None) -> None:
        """Everything this round came to, in one transaction under the fence."""
        claim = job.claim

        def write() -> bool:
            asked = False
            if end is None:
                asked = store.progress(claim, self.lease(), job.active_ms())
            else:
                store.check_fence(claim)
            for index, each in enumerate(performed):
                if each.result.in_commit is not None:
                    performed[index] = each = self._perform_in_commit(job, each)
                outcome.write_step(claim, each.run, each.result)
            if end is not None:
                outcome.write_end(claim, job.active_ms(), end)
            return asked

        asked = db.write(write)
        for each in performed:
            job.history.put(each.run)
        if asked:
            job.cancel.set()
        if end is not None and end.next_run_at is not None:
            self.timers.at(end.next_run_at, claim.scope.tenant_id, claim.execution_id)

    def _perform_in_commit(self, job: Job, each: Performed) -> Performed:
        """A DataPool write inside the commit that records its step."""
        try:
            with db.savepoint():
                output = each.result.in_commit() if each.result.in_commit else None
            return self._record(each.run, replace(each.result, output=output, in_commit=None))
        except ApplianceError as error:
            ready = Ready(job.compiled.steps[each.run.path], each.run.iteration, None)
            return self._failed(ready, each.run, from_coded(error))

    def _fail_system(self, claim: Claim) -> None:
        error = make_error("internal", "system", "the appliance failed while running this execution; its log has the reason")
        try:
            db.write(lambda: outcome.write_end(claim, claim.active_ms, outcome.failed(error)))
        except Fenced:
            log.warning("the failed execution has been claimed by another worker")


def claim_of(scope: TenantScope, row: Execution) -> Claim:
    """The claim on a row as it was just before `store.claim` raised its fence."""
    return Claim(
        scope, row.id, row.process_id, row.version, row.fence + 1, row.input, row.label_text, row.created_at,
        row.started_at or clock.now_ms(), row.active_ms, bool(row.cancel_requested), row.request_id, row.claims,
    )  # fmt: skip


def _shown_input(kind: str, filled: Mapping[str, Any], execution_input: Any) -> Any:
    """What the step run shows as its input: nothing that the execution's own input already is."""
    for name in ("step_input", "input", "arguments"):
        if name in filled:
            return filled[name]
    return None


def _located(error: Mapping[str, Any], run: StepRun) -> dict[str, Any]:
    return {**error, "step": run.step, "attempt": run.attempt} | ({"iteration": run.iteration} if run.iteration else {})


def _retry_delay(ready: Ready, attempt: int, error: Mapping[str, Any]) -> int | None:
    """Milliseconds until the next attempt; None when there is none."""
    policy = ready.step.retry
    failure_class = error["failure_class"]
    if error["code"] in ("sandbox_lost", "sandbox_busy") and attempt <= LOST_RETRIES:
        return LOST_DELAY_MS * attempt
    if policy is None or attempt >= policy.max_attempts or failure_class not in policy.classes:
        return None
    if failure_class == "connector" and not error.get("retryable", False):
        return None
    return policy.delay_ms(attempt, random.random())  # noqa: S311 jitter, not a secret


def _item_names(job: Job, path: str, iteration: str) -> dict[str, Any]:
    """The item and index of every for_each around `path` in this iteration, inner ones last."""
    names: dict[str, Any] = {}
    indexes = iteration.split(".")
    depth = 0
    outer = ""
    for part in _ancestors(path):
        step = job.compiled.steps[part]
        if step.kind != "for_each" or depth >= len(indexes):
            continue
        run = job.history.runs[part, outer]
        index = int(indexes[depth])
        names |= {step.settings["as"]: run.state["items"][index], "index": index}
        depth += 1
        outer = ".".join(indexes[:depth])
    return names


def _ancestors(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
