"""Tracing: the place of executions and steps in a trace, and their spans once they have finished."""

from collections.abc import Callable
from dataclasses import replace

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import Span, SpanContext, spans

from .decide import StepRun
from .store import Claim


def scope_of(scope: TenantScope, execution_id: str, trace: str) -> TenantScope:
    """The scope in which the execution works, so that its calls are children of its span.  `trace` is its parent's context."""
    return replace(scope, trace=str(spans.child_of(spans.parse(trace), execution_id))) if spans.is_on else scope


def scope_of_step(claim: Claim, step: str) -> TenantScope:
    """The same for the calls of a step run; `step` is its `span_key`."""
    parent = spans.parse(claim.scope.trace)
    return claim.scope if parent is None else replace(claim.scope, trace=str(_child_place(parent, claim, step)))


def span_key(path: str, iteration: str) -> str:
    """Identifies a step run within its execution."""
    return f"{path}/{iteration}"


def add_step_span(claim: Claim, run: StepRun, took_ms: int) -> None:
    """Inside a commit: add the span of a finished step run."""
    parent = spans.parse(claim.scope.trace)
    if parent is None or run.started_at is None:
        return
    attributes = _attributes(claim) | {"gos.step": run.step, "gos.step.kind": run.kind, "gos.step.status": run.status}
    attributes["gos.attempts"] = run.attempt
    if run.iteration:
        attributes["gos.iteration"] = run.iteration
    place = _child_place(parent, claim, span_key(run.path, run.iteration))
    failed = str((run.error or {}).get("failure_class", "")) if run.status == "failed" else ""
    span = Span(
        name=f"step {run.step}", place=place, parent=parent.span, kind="internal", began_ms=run.started_at, took_ms=took_ms,
        failed=failed, about=attributes,
    )
    db.after_commit(_add_later(span))


def add_execution_span(claim: Claim, status: str, took_ms: int, failure_class: str) -> None:
    """Inside a commit: add the span of a finished execution, from its acceptance to its end."""
    place, outer = spans.parse(claim.scope.trace), spans.parse(claim.trace)
    if place is None:
        return
    attributes = _attributes(claim) | {"gos.status": status, "gos.version": claim.version}
    attributes["gos.queued_ms"] = claim.started_at - claim.created_at
    parent = outer.span if outer else ""
    name = f"execute {claim.process_id}"
    span = Span(
        name=name, place=place, parent=parent, kind="internal", began_ms=claim.created_at, took_ms=took_ms, failed=failure_class,
        about=attributes,
    )
    db.after_commit(_add_later(span))


def _add_later(span: Span) -> Callable[[], None]:
    return lambda: spans.add(span)


def _child_place(around: SpanContext, claim: Claim, step: str) -> SpanContext:
    return spans.child_of(around, f"{claim.execution_id}/{step}")


def _attributes(claim: Claim) -> dict[str, str | int]:
    return {"gos.tenant": claim.scope.tenant_id, "gos.process": claim.process_id, "gos.execution": claim.execution_id}
