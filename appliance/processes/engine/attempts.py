"""Performs one attempt of a step: evaluates its settings, runs it, and turns every failure into a step run."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.errors import ApplianceError, StorageFull
from appliance.processes.definitions.nodes import Step
from appliance.processes.host.final_entries import with_evaluation_time
from appliance.processes.host.journal import Cancelled
from appliance.processes.steps import finish, for_each, perform

from . import caching, store, suspension, transitions
from .decide import Close, Ready, StepRun
from .evaluation import fill, is_true
from .failures import LOST_CODES, PREPARING, StepFailed, check_output, from_appliance_error
from .job import Job, Performed, RunningAttempt
from .task import Result, StepServices, Suspension, Task

LOST_RETRIES = 5
LOST_DELAY_MS = 100
PREPARING_DELAY_MS, LONGEST_PREPARING_DELAY_MS = 500, 5_000
LONGEST_RETRY_AFTER_S = 86_400
BEFORE_RECORDING = frozenset({"rule", "code", "datapool", "branch", "parallel", "for_each", "stop", "wait"})
"""Kinds of steps that may run before the execution is recorded: until their commit they change nothing, and calls of code are
checked one by one."""
_RANDOM = random.SystemRandom()  # for jitter; the generator of the `random` module is shared and may be seeded elsewhere


class _RolledBack(Exception):
    """Rolls back a write whose step fails because its output cannot be stored."""

    def __init__(self, recorded: Performed) -> None:
        super().__init__(recorded.run.path)
        self.recorded = recorded


class Attempts:
    """Performs the steps that the engine found ready; thread-safe."""

    def __init__(self, tools: StepServices) -> None:
        self._tools = tools

    def attempt(self, job: Job, ready: Ready) -> Performed:
        """Perform a step once.  LeaseLost, StorageFull and unexpected exceptions pass through: they are no failures of the step."""
        step, before = ready.step, ready.run
        now = ((before.state or {}).get("now") if before else None) or clock.now_ms()
        run = StepRun(
            step.path, ready.iteration, step.id, step.kind, "running", before.attempt if before else 1,
            state=before.state if before else None, started_at=before.started_at if before and before.started_at else now,
        )  # fmt: skip
        key = (step.path, ready.iteration)
        job.attempts[key] = RunningAttempt(run, clock.monotonic())
        try:
            with logs.log_context(execution_id=job.claim.execution_id, step=step.path):
                result = self._perform(job, ready, run, now)
            performed = Performed(run, result, run.attempt) if result.is_open else self._record(run, result)
        except Cancelled:
            return Performed(replace(run, status="cancelled", finished_at=clock.now_ms()), Result(status="cancelled"), run.attempt)
        except StepFailed as failed:
            performed = _failed(step, run, failed)
        except StorageFull:
            raise
        except ApplianceError as error:
            performed = _failed(step, run, from_appliance_error(error))
        finally:
            del job.attempts[key]
        if performed.result.suspending:
            performed.run.state = {**(run.state or {}), "now": now}  # the step resumes with the time it started with
        elif now != run.started_at and _is_moment_due(ready, performed):
            performed.result.journal = with_evaluation_time(performed.result.journal, now)
        return performed

    def perform_in_commit(self, job: Job, each: Performed) -> Performed:
        """Inside the commit that records the step: do its DataPool write, store its VM, or create its approval request."""
        if each.result.suspending is not None:
            return self._suspend(job, each, each.result.suspending)
        if each.result.settle is not None:
            return self._settle(job, each, each.result.settle)
        if each.result.in_commit is None:
            return each
        try:
            with db.savepoint():
                output = each.result.in_commit()
                recorded = self._record(each.run, replace(each.result, output=output, in_commit=None))
                if recorded.run.status == "failed":
                    raise _RolledBack(recorded)
            return recorded
        except _RolledBack as rolled_back:
            return rolled_back.recorded
        except StorageFull:
            raise
        except ApplianceError as error:
            return _failed(job.compiled.steps[each.run.path], each.run, from_appliance_error(error))

    def _settle(self, job: Job, each: Performed, settle: Callable[[], Result | StepFailed]) -> Performed:
        step = job.compiled.steps[each.run.path]
        try:
            with db.savepoint():
                settled = settle()
        except StorageFull:
            raise
        except ApplianceError as error:
            return _failed(step, each.run, from_appliance_error(error))
        if isinstance(settled, StepFailed):
            return _failed(step, each.run, settled)
        return self._record(each.run, replace(settled, journal=each.result.journal, cache_digest=each.result.cache_digest))

    def _suspend(self, job: Job, each: Performed, suspending: Suspension) -> Performed:
        run, claim = each.run, job.claim
        key = (run.path, run.iteration, each.attempt)
        suspension.save_vm(claim, key, suspending.stored, self._tools.sealer)
        # Its calls are already in the journal: each was recorded when it started.
        store.add_clock(claim, key, suspending.clock)
        # It progressed: stop counting.
        state = {name: value for name, value in (run.state or {}).items() if name not in ("lost", "unprepared")}
        return replace(each, run=replace(run, state={**state, "suspended": True}, next_run_at=suspending.next_due()))

    def close(self, job: Job, close: Close) -> Performed:
        """Finish a block whose steps are finished, a wait that is due, or a block that fails with one of its steps."""
        now = clock.now_ms()
        if close.error is not None:
            run = replace(close.run, status="failed", output=None, error=dict(close.error), finished_at=now)
            return Performed(run, Result(), run.attempt)
        run = replace(close.run, status="succeeded", output=close.output, finished_at=now)
        if close.step.kind == "for_each":
            names = job.names(close.iteration, close.step.path)
            try:
                run.output = for_each.collect(self._tools, close, job.history, names, now)
            except StepFailed as failed:
                error = _located(failed.error, run)
                return Performed(replace(run, status="failed", output=None, error=error), Result(), run.attempt)
            if close.errors:
                run.state = {**run.state, "errors": for_each.summarize_errors(close.errors)}
        return self._record(run, Result(output=run.output, state=run.state))

    @staticmethod
    def abandon(run: StepRun) -> Performed:
        """Finish a step run that will not be continued, with the status the engine gave it."""
        return Performed(replace(run, finished_at=clock.now_ms(), next_run_at=None), Result(status=run.status), run.attempt)

    # -- inside an attempt

    def _perform(self, job: Job, ready: Ready, run: StepRun, now: int) -> Result:
        step = ready.step
        names = job.names(ready.iteration, step.path)
        is_resumed = run.is_suspended and step.kind != "code"
        if step.when is not None and not run.is_suspended and not _is_approved(run):
            filled = fill(self._tools.pool, {"when": step.when}, names, now)
            if not is_true(filled["when"]):
                return Result(status="skipped")
        filled = (run.state or {}).get("filled", {}) if is_resumed else self._fill(job, run, names, now)
        run.input = ready.run.input if is_resumed and ready.run else visible_input(filled)
        task = Task(
            step=step, iteration=ready.iteration, attempt=run.attempt, claim=job.claim, compiled=job.compiled, names=names,
            filled=filled, input=filled.get("step_input", job.claim.input), now=now, time_ms=max(1, job.remaining_ms()),
            is_cancelled=job.is_cut_short, is_rerun=ready.run is not None or job.claim.fence > 1,
        )  # fmt: skip
        if step.kind not in BEFORE_RECORDING:
            store.record(job.claim)
        if is_resumed:
            return finish(self._tools, task)
        if step.cache is None:
            return perform(self._tools, task)
        digest = caching.digest_of(self._tools.pool, task, step.cache.key)
        cached = caching.find_output(task, digest)
        if cached is not None:
            return Result(output=cached.output, is_cached=True)
        return replace(perform(self._tools, task), cache_digest=digest)

    def _fill(self, job: Job, run: StepRun, names: Mapping[str, Any], now: int) -> dict[str, Any]:
        """The step's settings with their expressions evaluated.

        Settings of integrations and code that depend on the clock are stored first, so that after a crash the same
        request is sent again under the same idempotency key, and code restarts with the same values.
        """
        step = job.compiled.steps[run.path]
        if run.state and "filled" in run.state:
            stored: dict[str, Any] = run.state["filled"]
            return stored
        templates = {name: template for name, template in step.templates.items() if name != "expression"}
        filled = fill(self._tools.pool, templates, names, now)
        if step.kind in ("integration", "code") and step.is_volatile:
            run.state = {"filled": filled}
            db.write(lambda: transitions.write_started(job.claim, run), is_shared=True)
        return filled

    def _record(self, run: StepRun, result: Result) -> Performed:
        """The step run after an attempt that did not fail; it fails if its output is too large."""
        try:
            check_output(result.output if result.status == "succeeded" else None, self._tools.output_bytes)
        except StepFailed as failed:
            run = replace(run, status="failed", output=None, error=_located(failed.error, run), finished_at=clock.now_ms())
            return Performed(run, result, run.attempt)
        is_finished = result.status in ("succeeded", "skipped")
        changes = {
            "status": result.status, "output": result.output, "state": result.state, "next_run_at": result.next_run_at,
            "measured_by": result.measured_by, "result_source": "cached" if result.is_cached else "executed",
            "finished_at": (run.finished_at or clock.now_ms()) if is_finished else None,
        }  # fmt: skip
        after = StepRun(**vars(run) | changes)  # `replace` looks at every field, and this is done for every step
        return Performed(after, result, run.attempt)


def _is_approved(run: StepRun) -> bool:
    """Whether the step waited for an approval and continues with the approved action."""
    return ((run.state or {}).get("filled") or {}).get("approval_id") is not None


def _failed(step: Step, run: StepRun, failed: StepFailed) -> Performed:
    """The step run after a failure: failed, or retrying if the step's policy allows it.

    An attempt whose sandbox process was lost is not finished: the same attempt runs again from its journal, as after a
    crash of the whole appliance, so that no write is repeated.
    """
    result = Result(status="failed", logs=failed.logs, journal=failed.journal)
    error = _located(failed.error, run)
    now, boot_id = clock.now_ms(), clock.boot_id()
    repetition = _repetition(run, error["code"])
    if repetition is not None:
        state, pause = repetition
        next_run = replace(run, status="retrying", state=state, error=error, next_run_at=now + pause, measured_by=boot_id)
        return Performed(next_run, result, run.attempt)
    delay = _retry_delay(step, run.attempt, error)
    if delay is None:
        return Performed(replace(run, status="failed", state=None, error=error, finished_at=now), result, run.attempt)
    next_run = replace(
        run, status="retrying", attempt=run.attempt + 1, state=None, error=error, next_run_at=now + delay, measured_by=boot_id
    )  # fmt: skip
    return Performed(next_run, result, run.attempt)


def _repetition(run: StepRun, code: str) -> tuple[dict[str, Any], int] | None:
    """The state and milliseconds until the same attempt runs again; None if its failure does not allow that.

    A runtime in preparation is waited for until it is ready or has failed, less and less often.
    """
    state = run.state or {}
    if code == PREPARING:
        refusals = state.get("unprepared", 0) + 1
        return {**state, "unprepared": refusals}, min(refusals * PREPARING_DELAY_MS, LONGEST_PREPARING_DELAY_MS)
    losses = state.get("lost", 0) + 1
    if code not in LOST_CODES or losses > LOST_RETRIES:
        return None
    return {**state, "lost": losses}, LOST_DELAY_MS * losses


def _is_moment_due(ready: Ready, performed: Performed) -> bool:
    """Whether to record when this attempt's expressions were evaluated: not while it continues, and not if an earlier visit
    has evaluated them and stored the values."""
    is_stored = ready.run is not None and ready.run.state is not None and not ready.run.state.keys() & {"lost", "unprepared", "now"}
    continues = performed.run.status == "retrying" and performed.run.attempt == performed.attempt
    return not (is_stored or continues or performed.run.status == "waiting")


def _retry_delay(step: Step, attempt: int, error: Mapping[str, Any]) -> int | None:
    """Milliseconds until the next attempt, at least as long as the other system asked for; None if there is none."""
    failure_class = error["failure_class"]
    policy = next((each for each in step.retry if failure_class in each.classes), None)
    if policy is None or attempt >= policy.max_attempts:
        return None
    if failure_class == "connector" and not error.get("retryable", False):
        return None
    requested_seconds = min(float(error.get("retry_after") or 0), LONGEST_RETRY_AFTER_S)
    return max(policy.delay_ms(attempt, _RANDOM.random()), int(requested_seconds * 1000))


def visible_input(filled: Mapping[str, Any]) -> Any:
    """What the step run shows as its input; None if that is only the execution's own input."""
    for name in ("step_input", "input", "arguments"):
        if name in filled:
            return filled[name]
    return None


def _located(error: Mapping[str, Any], run: StepRun) -> dict[str, Any]:
    return {**error, "step": run.step, "attempt": run.attempt} | ({"iteration": run.iteration} if run.iteration else {})
