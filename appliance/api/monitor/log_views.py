"""The views of log lines, analytics, queues, failures and the audit trail."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import View
from appliance.core import clock
from appliance.monitor import Line, analytics

FailureState = Literal["open", "acknowledged", "resolved"]


class LineView(View):
    at: Annotated[str, Field(description="When the line was written; RFC 3339, UTC.")]
    level: Annotated[str, Field(description="The severity: `debug`, `info`, `warn` or `error`.")]
    source: Annotated[str, Field(description="What wrote the line, such as `step`, `process` or `integration`.")]
    message: Annotated[str, Field(description="The text of the line.")]
    fields: Annotated[dict[str, Any], Field(description="Structured data written with the line; empty without any.")]
    execution_id: Annotated[str | None, Field(description="The execution that the line is about; `exe_…`. Absent if none.")] = None
    process_id: Annotated[str | None, Field(description="The process of that execution; absent without one.")] = None
    step: Annotated[str | None, Field(description="The id of the step that wrote the line; absent for other lines.")] = None
    request_id: Annotated[str | None, Field(description="The request that led to the line; `req_…`. Absent if none.")] = None


def line_view(line: Line) -> LineView:
    """The view of a log line that REST and MCP share."""
    return LineView.model_construct(
        at=clock.rfc3339(line.at), level=line.level, source=line.source, message=line.message,
        fields=dict(line.fields or {}), execution_id=line.execution_id, process_id=line.process_id, step=line.step,
        request_id=line.request_id,
    )  # fmt: skip


class SummaryView(View):
    """Durations are in milliseconds; percentiles of few values are exact, of many within 10 % of the true value."""

    count: Annotated[int, Field(description="How many were counted, whatever their outcome.")]
    failures: Annotated[int, Field(description="How many of them failed.")]
    by_outcome: Annotated[dict[str, int], Field(description="How many ended in each way, by the name of the outcome.")]
    mean_ms: Annotated[
        float | None, Field(description="The mean duration in milliseconds; absent without measured durations.")
    ] = None
    p50_ms: Annotated[
        float | None, Field(description="The median duration in milliseconds; absent without measured durations.")
    ] = None
    p95_ms: Annotated[
        float | None, Field(description="Milliseconds within which 95 % ended; absent without measured durations.")
    ] = None
    p99_ms: Annotated[
        float | None, Field(description="Milliseconds within which 99 % ended; absent without measured durations.")
    ] = None


class PointView(SummaryView):
    at: Annotated[str, Field(description="When the point begins; RFC 3339, UTC.")]


class NameView(SummaryView):
    name: Annotated[str, Field(description="The process, kind of step or integration that the figures are about.")]


class AnalyticsView(View):
    kind: Annotated[str, Field(description="What was measured, as in the query.")]
    since: Annotated[str, Field(description="When the first point begins; RFC 3339, UTC.")]
    until: Annotated[str, Field(description="When the period ends; RFC 3339, UTC.")]
    bucket_ms: Annotated[
        int, Field(description="The width of a point in milliseconds, which may be wider than requested for old data.")
    ]
    total: Annotated[SummaryView, Field(description="The figures of the whole period.")]
    points: Annotated[list[PointView], Field(description="The figures over time, oldest first.")]
    names: Annotated[list[NameView], Field(description="The figures of the whole period by process, kind of step or integration.")]


def _summary(summary: analytics.Summary) -> dict[str, Any]:
    return {
        "count": summary.count, "failures": summary.failures, "by_outcome": dict(summary.by_result),
        "mean_ms": summary.mean_ms, "p50_ms": summary.percentile(0.5), "p95_ms": summary.percentile(0.95),
        "p99_ms": summary.percentile(0.99),
    }  # fmt: skip


class ProtectionView(View):
    """A protection that confines every sandbox process; if it is not active, `text` says what that means."""

    holds: Annotated[bool, Field(description="True if the protection is active.")]
    text: Annotated[str, Field(description="What the protection does, or what its absence means.")]


class RuntimeView(View):
    """A runtime that the appliance can start without, and prepares in the background."""

    name: Annotated[str, Field(description="`php`, or `types` for the type checker.")]
    state: Annotated[str, Field(description="`ready`, `preparing`, or `failed`.")]
    message: Annotated[str | None, Field(description="What it means for processes, unless it is ready.")] = None


class SandboxView(View):
    """The sandbox processes, which run the step code of all tenants: slots, waiting calls, and restarts since the start."""

    processes: Annotated[int, Field(description="How many sandbox processes are running.")]
    slots: Annotated[int, Field(description="How many calls they can run at once.")]
    busy: Annotated[int, Field(description="How many slots are in use.")]
    queued: Annotated[int, Field(description="How many calls wait for a free slot.")]
    oldest_wait_ms: Annotated[int, Field(description="Milliseconds that the first of them has waited; 0 if none waits.")]
    restarts: Annotated[int, Field(description="How many processes were replaced since the appliance started.")]
    restart_reasons: Annotated[dict[str, int], Field(description="The number of replaced processes for each reason.")]
    confined: Annotated[int, Field(description="How many of the running processes are confined by seccomp.")]
    protections: Annotated[list[ProtectionView], Field(description=(
        "The protections of the host that confine the processes, active or not; empty while none runs."
    ))]
    starts_on_demand: Annotated[bool, Field(description=(
        "True in `gos serve --no-workers`: a process starts when a draft is to be checked or tested, and ends when it is idle."
    ))]
    runtimes: Annotated[list[RuntimeView], Field(description="The runtimes that may be prepared in the background.")]


class QueueView(View):
    """The load of this tenant's executions."""

    depth: Annotated[int, Field(description="How many executions wait for a worker.")]
    oldest_age_ms: Annotated[
        int | None, Field(description="Milliseconds that the first of them has waited; 0 if none waits.")
    ] = None
    in_flight: Annotated[int, Field(description="How many executions are running or being cancelled.")]
    waiting: Annotated[int, Field(description="How many executions wait for a person, a time, an event or another execution.")]
    scheduled: Annotated[int, Field(description="How many executions are to start at a later time.")]
    workers: Annotated[int, Field(description=(
        "How many executions the process that answers runs at once; 0 in `gos serve --no-workers`, beside which others run them."
    ))]
    lag_ms: Annotated[
        float | None, Field(description="Milliseconds by which the workers are behind: the age of the first queued execution.")
    ] = None
    sandbox: Annotated[SandboxView, Field(description="The processes that run the code of steps, shared by all tenants.")]


class FailureView(View):
    id: Annotated[str, Field(description="Identifies the group; `fail_…`.")]
    process_id: Annotated[str, Field(description="The process whose executions failed.")]
    step: Annotated[
        str | None, Field(description="The id of the step that failed; absent if the failure is of the whole execution.")
    ] = None
    failure_class: Annotated[str, Field(description="The kind of failure, which decides whether a step is retried.")]
    code: Annotated[str, Field(description="The error code, stable across versions.")]
    message: Annotated[str, Field(description=(
        "The error message of a failure of the group; others differ in numbers, ids and quoted values at most."
    ))]
    state: Annotated[FailureState, Field(description=(
        "Whether somebody has to act (`open`), has seen it (`acknowledged`) or has fixed it (`resolved`)."
    ))]
    count: Annotated[int, Field(description="How many failures the group has had.")]
    first_seen: Annotated[str, Field(description="When the first of them happened; RFC 3339, UTC.")]
    last_seen: Annotated[str, Field(description="When the latest happened; RFC 3339, UTC.")]
    sample_execution_id: Annotated[str, Field(description="An execution that failed this way, to look at; `exe_…`.")]
    changed_at: Annotated[
        str | None, Field(description="When a person last changed the state; RFC 3339, UTC. Absent if nobody did.")
    ] = None
    changed_by: Annotated[str | None, Field(description="The actor that last changed the state; absent if nobody did.")] = None


def failure_view(group: Any) -> FailureView:
    """The view of a group of failures."""
    return FailureView(
        id=group.id, process_id=group.process_id, step=group.step or None, failure_class=group.failure_class,
        code=group.code, message=group.message, state=group.state, count=group.count,
        first_seen=clock.rfc3339(group.first_seen), last_seen=clock.rfc3339(group.last_seen),
        sample_execution_id=group.sample_execution_id, changed_at=clock.optional_rfc3339(group.changed_at),
        changed_by=group.changed_by,
    )  # fmt: skip


class RetryAllView(View):
    """`retried` maps a failed execution to its retry, `refused` to the reason why it was not retried; `waiting` lists remaining
    executions whose process is at its concurrency limit."""

    retried: Annotated[
        dict[str, str], Field(description="The retry of each failed execution: its id by the id of the failed one, both `exe_…`.")
    ]
    refused: Annotated[dict[str, str], Field(description="Why an execution was not retried, by its id.")]
    waiting: Annotated[
        list[str], Field(description="Executions whose process is at its concurrency limit; the next call retries them.")
    ]
    remaining: Annotated[
        int, Field(description="How many executions are still to be retried, those in `waiting` included; 0 when done.")
    ]


class AuditView(View):
    """`hash` is the SHA-256 of the compact JSON `[tenant, seq, at in ms, actor, action, subject, fields, previous_hash]`."""

    seq: Annotated[int, Field(description="The number of the entry in the tenant's trail, from 1 without gaps.")]
    at: Annotated[str, Field(description="When the action happened; RFC 3339, UTC.")]
    actor: Annotated[str, Field(description="Who acted, such as `user:usr_…`, `key:key_…` or `execution:exe_…`.")]
    action: Annotated[str, Field(description="What was done, such as `approval.request`.")]
    subject: Annotated[str, Field(description="The resource that it was done to, by its id or name.")]
    fields: Annotated[str, Field(description="Details of the action as JSON text, exactly as it was hashed.")]
    previous_hash: Annotated[str, Field(description="The `hash` of the entry before, in hexadecimal.")]
    hash: Annotated[str, Field(description="SHA-256 in hexadecimal over this entry and `previous_hash`.")]


class VerdictView(View):
    intact: Annotated[bool, Field(description="True if no entry was changed, removed or inserted.")]
    entries: Annotated[int, Field(description="How many entries were verified.")]
    first_seq: Annotated[
        int | None, Field(description="The number of the first entry still kept; absent if the trail is empty.")
    ] = None
    last_seq: Annotated[int | None, Field(description="The number of the last verified entry; absent if there is none.")] = None
    broken_seq: Annotated[
        int | None, Field(description="The number of the first entry that is wrong or missing; absent if the trail is intact.")
    ] = None
    reason: Annotated[str | None, Field(description="What is wrong with that entry; absent if the trail is intact.")] = None
