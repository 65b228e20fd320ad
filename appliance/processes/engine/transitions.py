"""Records how the runner leaves an execution: status, log lines, failures, tallies and events."""

from dataclasses import dataclass, replace
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.monitor import failures, metrics, tally
from appliance.monitor import logs as log_lines
from appliance.processes.definitions.nodes import WAITING_KINDS

from . import completion, store, suspension, tracing, waits
from .decide import Decision, History, Key, StepRun
from .failures import TIMED_OUT_TEXT, make_error
from .job import Performed
from .store import Claim

EXECUTIONS = metrics.registry.counter("gos_executions_total", "Executions that ended.", ("status",))
EXECUTION_SECONDS = metrics.registry.histogram("gos_execution_seconds", "From acceptance to the end.", ("status",))
STEPS = metrics.registry.counter("gos_steps_total", "Step runs that ended.", ("kind",))
STEP_SECONDS = metrics.registry.histogram("gos_step_seconds", "From the first attempt to the end.", ("kind",))


def _count(counter: metrics.Counter, seconds: metrics.Histogram, label: str, took_ms: int) -> None:
    counter.inc(1, label)
    seconds.observe(took_ms / 1000, label)


@dataclass(frozen=True)
class Transition:
    """The execution's next status with its details; `at` is when its output was evaluated.

    `stopped` is the (path, iteration) of the step that ended it early, `aftermath` the record of compensation.
    """

    status: str
    output: Any = None
    error: dict[str, Any] | None = None
    at: int | None = None
    wait_reason: str | None = None
    waiting_for: dict[str, Any] | None = None
    next_run_at: int | None = None
    stopped: Key | None = None
    compensation: dict[str, Any] | None = None


def succeeded(output: Any, at: int, stopped: StepRun | None = None) -> Transition:
    return Transition("succeeded", output, at=at, stopped=(stopped.path, stopped.iteration) if stopped else None)


def failed(error: dict[str, Any], at: int | None = None) -> Transition:
    return Transition("failed", error=error, at=at)


def cancelled() -> Transition:
    return Transition("cancelled")


def timed_out(limit_ms: int) -> Transition:
    message = TIMED_OUT_TEXT % {"seconds": limit_ms / 1000}
    return Transition("timed_out", error=make_error("execution_timeout", "timeout", message))


def waiting(decision: Decision, history: History) -> Transition:
    """Waiting until the earliest timer; `with_open_calls` adds the calls it waits for."""
    due_runs = [r for r in history.runs.values() if r.status in ("waiting", "retrying") and r.next_run_at == decision.wake_at]
    until = clock.optional_rfc3339(decision.wake_at)
    waiting_for = {"step": due_runs[0].step, "until": until} if due_runs else {"until": until}
    return Transition("waiting", wait_reason=decision.wake_reason, waiting_for=waiting_for, next_run_at=decision.wake_at)


def with_open_calls(claim: Claim, transition: Transition, history: History) -> Transition:
    """Inside a commit: `transition` with the calls that steps wait for; due at once if one has been answered in the meantime."""
    suspended = [run for run in history.runs.values() if run.status == "waiting" and run.is_suspended]
    if not suspended:
        return transition
    steps = {(run.path, run.iteration): run.step for run in suspended}
    pending = suspension.open_calls(claim.scope, claim.execution_id)
    views = [waits.to_view(each, steps[each.path, each.iteration]) for each in pending if (each.path, each.iteration) in steps]
    reasons = {waits.reason_of(each) for each in pending}
    if transition.wait_reason == "retry":
        reasons.add("retry")
    elif any(run.status == "waiting" and not run.is_suspended for run in history.runs.values()):
        reasons.add("timer")
    reason = next((name for name in waits.REASONS if name in reasons), transition.wait_reason)
    waiting_for = {**(transition.waiting_for or {}), "waits": views}
    return replace(transition, wait_reason=reason, waiting_for=waiting_for, next_run_at=store.earliest_due(claim))


def write_started(claim: Claim, run: StepRun) -> None:
    """In a write of its own: save a started step run with its stored state."""
    store.check_fence(claim)
    store.save_run(claim.scope, claim.execution_id, run)


def write_step(claim: Claim, performed: Performed, *, is_new: bool = False) -> None:
    """Inside a commit: write the step run, its journal, its log lines and an event.

    `is_new`: the execution was inserted in this commit, so the step has not waited for a call.
    """
    run, result, attempt = performed.run, performed.result, performed.attempt
    store.save_run(claim.scope, claim.execution_id, run)
    if run.started_at is not None and run.finished_at is not None:
        took_ms = run.finished_at - run.started_at
        db.after_commit(lambda: _count(STEPS, STEP_SECONDS, run.kind, took_ms))
        tracing.add_step_span(claim, run, took_ms)
    if result.journal:
        store.append_journal(claim, (run.path, run.iteration, attempt), result.journal)
    if result.logs:
        lines = [
            log_lines.Line(
                at=line.at_ms, level=line.level, source="step", message=line.message, fields=line.fields,
                execution_id=claim.execution_id, process_id=claim.process_id, step=run.step, request_id=claim.request_id,
            )
            for line in result.logs
        ]  # fmt: skip
        log_lines.write_lines(claim.scope, lines)
    if not is_new and run.kind in WAITING_KINDS and (run.finished_at is not None or run.attempt != attempt):
        completion.close_step(claim.scope, claim.execution_id, run.path, run.iteration)
    if run.status == "failed":
        _log_failure(claim, run)
    store.add_step_event(claim, run, attempt)


def _log_failure(claim: Claim, run: StepRun) -> None:
    error = run.error or {}
    fields = {name: error[name] for name in ("code", "failure_class", "position", "next") if name in error}
    line = log_lines.Line(
        at=clock.now_ms(), level="error", source="process", message=f"step {run.step} failed: {error.get('message', '')}",
        fields=fields, execution_id=claim.execution_id, process_id=claim.process_id, step=run.step,
        request_id=claim.request_id,
    )  # fmt: skip
    log_lines.write_lines(claim.scope, [line])


def _count_time(claim: Claim, status: str, ran_ms: int, active_ms: int) -> None:
    """Inside a commit: count active time and waiting time (for people, timers, events, children or retries).  An execution
    that ended under its first claim never waited."""
    active_ms = min(ran_ms, active_ms) if claim.fence > 1 else ran_ms
    name = f"{claim.process_id}:{status}"
    tally.add(claim.scope, "execution", name, active_ms)
    if ran_ms > active_ms:
        tally.add(claim.scope, "waiting", name, ran_ms - active_ms)


def _columns(transition: Transition, now: int) -> dict[str, Any]:
    """The columns of the execution's row that a transition sets."""
    changes: dict[str, Any] = {
        "wait_reason": transition.wait_reason,
        "waiting_for": transition.waiting_for,
        "next_run_at": transition.next_run_at,
    }
    if transition.status in store.FINISHED:
        error = transition.error or {}
        changes |= {
            "finished_at": now,
            "output": transition.output,
            "error": transition.error,
            "failure_class": error.get("failure_class"),
            "failure_code": error.get("code"),
            "failed_step": error.get("step"),
        }
    if transition.compensation is not None:
        changes["aftermath"] = transition.compensation
    return changes


def look_ahead(claim: Claim, transition: Transition) -> None:
    """At the start of a commit: announce the queries that the end of the execution will run, if this is one."""
    if transition.status in store.FINISHED:
        completion.look_ahead(claim.scope, claim.process_id, transition.status)


def insert_succeeded(claim: Claim, active_ms: int, transition: Transition) -> bool:
    """At the start of a commit: insert a deferred row whose execution succeeds in this commit; False if there is none to insert."""
    if claim.deferred is None or transition.status != "succeeded" or transition.at is None:
        return False
    return store.insert_ended(claim, transition.status, active_ms, _columns(transition, transition.at))


def write_transition(claim: Claim, active_ms: int, transition: Transition, *, is_new: bool = False) -> None:
    """Inside a commit: write the execution's new status, and for a finished one its failure group and tally.

    `is_new`: `insert_succeeded` has inserted its row in this commit, so nothing can wait for it, or it for anything.
    """
    now = transition.at or clock.now_ms()
    finished, error = transition.status in store.FINISHED, transition.error or {}
    if not is_new:
        store.settle(claim, transition.status, active_ms, _columns(transition, now))
    if finished and transition.status != "succeeded":
        store.close_runs(claim.scope, claim.execution_id, "failed" if transition.error else "cancelled")
    if transition.stopped is not None:
        store.close_enclosing(claim.scope, claim.execution_id, *transition.stopped)
        store.close_runs(claim.scope, claim.execution_id, "cancelled")
    completion.record_status(claim.scope, claim.execution_id, transition.status, transition.error, is_new=is_new)
    if finished:
        child = completion.Child(claim.execution_id, claim.process_id, transition.status, transition.output, transition.error)
        completion.close_execution(claim.scope, child, is_new=is_new)
        took_ms = max(0, now - claim.created_at)
        _count_time(claim, transition.status, max(0, now - claim.started_at), active_ms)
        db.after_commit(lambda: _count(EXECUTIONS, EXECUTION_SECONDS, transition.status, took_ms))
        tracing.add_execution_span(claim, transition.status, took_ms, str(error.get("failure_class", "")))
    if transition.error is not None:
        failures.record_failure(
            claim.scope,
            failures.Failure(
                claim.process_id, claim.execution_id, error.get("step"), error["failure_class"], error["code"], error["message"]
            ),
        )
