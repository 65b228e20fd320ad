"""/api/v1/logs"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Acts, Answer, Body, Call, Events, ListQuery, Query, View, route
from appliance.core import clock
from appliance.core.errors import InvalidRequest, ValidationFailed
from appliance.core.pages import Page
from appliance.monitor import Line, LineFilter, Tail, analytics, audit, failures, logs
from appliance.processes.executions import FailedWork
from appliance.tenants.grants import standing

POLL_SECONDS = 0.5

Level = Literal["debug", "info", "warn", "error"]
FailureState = Literal["open", "acknowledged", "resolved"]
Name = Annotated[str, Field(max_length=200)]
Moment = Annotated[str, Field(max_length=40, description="RFC 3339 time, or a duration such as 24h for that long ago.")]


def moment(text: str | None, name: str) -> int | None:
    """Epoch milliseconds of a time, or of a duration back from now."""
    if text is None:
        return None
    pointer = f"/{name}"
    try:
        return max(0, clock.now_ms() - clock.parse_duration(text, pointer=pointer))
    except ValidationFailed:
        return max(0, clock.parse_rfc3339(text, pointer=pointer))


class LogQuery(ListQuery):
    text: Annotated[str, Field(max_length=500, description="Words that each begin one of message, fields or ids.")] | None = None
    level: Annotated[Level, Field(description="This level and above.")] | None = None
    source: Name | None = None
    execution: Name | None = None
    process: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    follow: bool = False

    @property
    def wanted(self) -> LineFilter:
        return LineFilter(
            self.text, self.level, self.source, self.execution, self.process,
            moment(self.since, "since"), moment(self.until, "until"),
        )  # fmt: skip


class LineView(View):
    at: str
    level: str
    source: str
    message: str
    fields: dict[str, Any]
    execution_id: str | None = None
    process_id: str | None = None
    step: str | None = None
    request_id: str | None = None


def line_view(line: Line) -> LineView:
    """A log line as every surface shows it."""
    return LineView.model_construct(
        at=clock.rfc3339(line.at), level=line.level, source=line.source, message=line.message,
        fields=dict(line.fields or {}), execution_id=line.execution_id, process_id=line.process_id, step=line.step,
        request_id=line.request_id,
    )  # fmt: skip


@route("GET", "/logs", scope="logs.read", returns=LineView, listed=True, query=LogQuery, acts=Acts("read_logs"))
def list_logs(call: Call) -> Page[LineView] | Answer:
    """List log lines, newest first.

    `follow=true` answers server-sent events instead: every matching line from now on, those from `since` before it, or those
    after the `Last-Event-ID` of an interrupted stream.
    """
    query: LogQuery = call.query
    if query.follow:
        return Answer(Events(_follow(call, _tail(call, query))))
    return logs.list_lines(call.scope, query.wanted, query.page).map(line_view)


def _tail(call: Call, query: LogQuery) -> Tail:
    """Begins where the caller stopped, whatever time is named besides; else at that time, or now."""
    seen = call.headers.get("last-event-id", "")
    if seen:
        if not (seen.isascii() and seen.isdigit() and len(seen) <= 18):
            raise InvalidRequest("Last-Event-ID must be the id of an event of this stream", pointer="/Last-Event-ID")
        return Tail(call.scope, replace(query.wanted, since=None), int(seen))
    return Tail(call.scope, query.wanted, 0 if query.since is not None else logs.last_number())


async def _follow(call: Call, tail: Tail) -> AsyncIterator[tuple[int | None, str, Any]]:
    """Matching lines as they are kept, until the caller leaves or the key ends."""
    loop, scope = asyncio.get_running_loop(), call.scope

    def look() -> list[Line] | None:
        return tail.look() if standing.is_still_allowed(scope, "logs.read") else None

    while (lines := await loop.run_in_executor(call.services.threads, look)) is not None:
        for line in lines:  # whoever reads slowly has us wait here
            yield line.number, "line", line_view(line).model_dump(exclude_none=True)
        if not tail.is_behind:
            await asyncio.sleep(call.services.streams.pause(POLL_SECONDS))


class AnalyticsQuery(Query):
    kind: analytics.Kind = "execution"
    name: Annotated[str, Field(max_length=200, description="One process, kind of step or integration.")] | None = None
    since: Moment = "24h"
    until: Moment | None = None
    bucket: Annotated[str, Field(max_length=20, description="Width of a point, such as 5m, 1h or 1d.")] | None = None


class SummaryView(View):
    """Durations in milliseconds; a percentile of a few is exact, one of many within a tenth of the truth."""

    count: int
    failures: int
    by_outcome: dict[str, int]
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


class PointView(SummaryView):
    at: str


class NameView(SummaryView):
    name: str


class AnalyticsView(View):
    kind: str
    since: str
    until: str
    bucket_ms: int
    total: SummaryView
    points: list[PointView]
    names: list[NameView]


def _summary(summary: analytics.Summary) -> dict[str, Any]:
    return {
        "count": summary.count, "failures": summary.failures, "by_outcome": dict(summary.by_outcome),
        "mean_ms": summary.mean_ms, "p50_ms": summary.percentile(0.5), "p95_ms": summary.percentile(0.95),
        "p99_ms": summary.percentile(0.99),
    }  # fmt: skip


@route("GET", "/logs/analytics", scope="logs.read", returns=AnalyticsView, query=AnalyticsQuery)
def get_analytics(call: Call) -> AnalyticsView:
    """Show how much ran over time, how long it took and how often it failed.

    `kind=execution` measures the time in which executions worked, from their start; `kind=waiting` how long those waited that
    waited for people, times, events, other executions or another attempt.
    Points are as wide as `bucket`, at least an hour for what is older than two days and a day beyond 90 days.
    """
    query: AnalyticsQuery = call.query
    now = clock.now_ms()
    window = analytics.Window(
        moment(query.since, "since") or 0, moment(query.until, "until") or now + 1,
        clock.parse_duration(query.bucket, pointer="/bucket") if query.bucket else None, query.kind, query.name,
    )  # fmt: skip
    series = analytics.read_series(call.scope, window)
    return AnalyticsView(
        kind=query.kind, since=clock.rfc3339(series.since), until=clock.rfc3339(series.until), bucket_ms=series.bucket,
        total=SummaryView(**_summary(series.total)),
        points=[PointView(at=clock.rfc3339(at), **_summary(point)) for at, point in series.points],
        names=[NameView(name=name, **_summary(summary)) for name, summary in series.names.items()],
    )  # fmt: skip


class ProtectionView(View):
    """What holds every sandbox process; where one does not hold, `text` says what that means."""

    holds: bool
    text: str


class SandboxView(View):
    """The processes that run step code, of all tenants: places, who waits for one, and processes replaced since the start."""

    processes: int
    slots: int
    busy: int
    queued: int
    oldest_wait_ms: int
    restarts: int
    restart_reasons: dict[str, int]
    confined: int
    protections: list[ProtectionView]


class QueueView(View):
    """How busy the appliance is with this tenant's executions."""

    depth: int
    oldest_age_ms: int | None = None
    in_flight: int
    waiting: int
    scheduled: int
    workers: int
    lag_ms: float | None = None
    sandbox: SandboxView


@route("GET", "/logs/queues", scope="logs.read", returns=QueueView)
def get_queues(call: Call) -> QueueView:
    """Show the queue: depth, oldest age, what is in flight, waiting and scheduled, workers and lag, and the sandbox."""
    pool = call.services.pool
    protections = [ProtectionView(holds=holds, text=text) for holds, text in pool.protections().lines()]
    sandbox = SandboxView(**pool.health(), restart_reasons=dict(pool.restarts()), protections=protections)
    return QueueView(**call.services.processes.queue_state(call.scope), sandbox=sandbox)


class FailureQuery(ListQuery):
    state: FailureState | None = None
    process: Name | None = None


class FailureView(View):
    id: str
    process_id: str
    step: str | None = None
    failure_class: str
    code: str
    message: str
    state: FailureState
    count: int
    first_seen: str
    last_seen: str
    sample_execution_id: str
    changed_at: str | None = None
    changed_by: str | None = None


def failure_view(group: Any) -> FailureView:
    """A group of failures as every surface shows it."""
    return FailureView(
        id=group.id, process_id=group.process_id, step=group.step or None, failure_class=group.failure_class,
        code=group.code, message=group.message, state=group.state, count=group.count,
        first_seen=clock.rfc3339(group.first_seen), last_seen=clock.rfc3339(group.last_seen),
        sample_execution_id=group.sample_execution_id, changed_at=clock.optional_rfc3339(group.changed_at),
        changed_by=group.changed_by,
    )  # fmt: skip


@route("GET", "/logs/failures", scope="logs.read", returns=FailureView, listed=True, query=FailureQuery)
def list_failures(call: Call) -> Page[FailureView]:
    """List failures grouped by what they have in common, the latest first."""
    query: FailureQuery = call.query
    groups = failures.list_failures(call.scope, query.page, state=query.state, process_id=query.process)
    return groups.map(failure_view)


@route("GET", "/logs/failures/{failure_id}", scope="logs.read", returns=FailureView)
def get_failure(call: Call, failure_id: str) -> FailureView:
    """Show one group of failures."""
    return failure_view(failures.get_failure(call.scope, failure_id))


class ChangeFailure(Body):
    state: FailureState


@route("PATCH", "/logs/failures/{failure_id}", scope="processflow.execute", body=ChangeFailure, returns=FailureView)
def change_failure(call: Call, failure_id: str) -> FailureView:
    """Acknowledge, resolve or re-open a group of failures; a new occurrence re-opens a resolved one."""
    return failure_view(failures.set_state(call.scope, failure_id, call.body.state))


class RetryAllView(View):
    """`retried` maps a failed execution to the one that retries it, `refused` to the reason why none does; `waiting`, among those
    that remain, found no free place in their process."""

    retried: dict[str, str]
    refused: dict[str, str]
    waiting: list[str]
    remaining: int


@route(
    "POST", "/logs/failures/{failure_id}/retry-all", scope="processflow.execute", returns=RetryAllView, atomic=False
)  # fmt: skip
def retry_failures(call: Call, failure_id: str) -> RetryAllView:
    """Retry every execution of a group from where it failed.

    At most 200 at once; call again while `remaining` is not 0, and later where some are `waiting` for a free place. Each
    execution is retried from here once; what has been retried in another way, is deleted by now, failed before the group was
    resolved or is retried with the execution that waited for it is passed over.
    """
    outcome = failures.retry_all(call.scope, failure_id, FailedWork(call.services.processes))
    return RetryAllView(
        retried=outcome.retried, refused=outcome.refused, waiting=list(outcome.waiting), remaining=outcome.remaining
    )  # fmt: skip


class AuditQuery(ListQuery):
    actor: Name | None = None
    action: Name | None = None
    subject: Annotated[str, Field(max_length=500)] | None = None
    since: Moment | None = None
    until: Moment | None = None


class AuditView(View):
    """`hash` is SHA-256 over the compact JSON `[tenant, seq, at in ms, actor, action, subject, fields, previous_hash]`."""

    seq: int
    at: str
    actor: str
    action: str
    subject: str
    fields: Annotated[str, Field(description="JSON, as the very text that was hashed.")]
    previous_hash: str
    hash: str


@route("GET", "/logs/audit", scope="logs.read", returns=AuditView, listed=True, query=AuditQuery)
def list_audit(call: Call) -> Page[AuditView]:
    """List the audit trail, newest first; each entry is bound to the one before it by its hash."""
    query: AuditQuery = call.query
    wanted = audit.AuditFilter(query.actor, query.action, query.subject, moment(query.since, "since"), moment(query.until, "until"))
    return audit.list_entries(call.scope, wanted, query.page).map(_audit_view)


def _audit_view(entry: Any) -> AuditView:
    members: Mapping[str, Any] = entry.__data__
    return AuditView(**{**members, "at": clock.rfc3339(entry.at)})


class VerdictView(View):
    intact: bool
    entries: int
    first_seq: int | None = None
    last_seq: int | None = None
    broken_seq: int | None = None
    reason: str | None = None


@route("GET", "/logs/audit/verify", scope="logs.read", returns=VerdictView)
def verify_audit(call: Call) -> VerdictView:
    """Recompute the audit trail: whether nothing was changed, taken away or put in."""
    verdict = audit.verify(call.scope)
    return VerdictView(
        intact=verdict.intact, entries=verdict.entries, first_seq=verdict.first_seq, last_seq=verdict.last_seq,
        broken_seq=verdict.broken_seq, reason=verdict.reason,
    )  # fmt: skip
