"""/api/v1/logs: log lines, analytics, queues, failures and the audit trail."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Acts, Answer, Body, Call, Events, ListQuery, Query, route
from appliance.core import clock
from appliance.core.errors import InvalidRequest, ValidationFailed
from appliance.core.pages import Page
from appliance.monitor import ChainStatus, Line, LineFilter, Tail, analytics, audit, failures, logs
from appliance.processes.executions import FailureRetries
from appliance.tenants.grants import continued_access

from .log_views import (
    AnalyticsView,
    AuditView,
    FailureState,
    FailureView,
    LineView,
    NameView,
    PointView,
    ProtectionView,
    QueueView,
    RetryAllView,
    RuntimeView,
    SandboxView,
    SummaryView,
    VerdictView,
    _summary,
    failure_view,
    line_view,
)

POLL_SECONDS = 0.5

Level = Literal["debug", "info", "warn", "error"]
Name = Annotated[str, Field(max_length=200)]
LongText = Annotated[str, Field(max_length=500)]
Duration = Annotated[str, Field(max_length=20)]
Moment = Annotated[str, Field(max_length=40, description="RFC 3339 time, or a duration such as 24h for that long ago.")]


def parse_moment(text: str | None, name: str) -> int | None:
    """The epoch milliseconds of a time, or of a duration before now."""
    if text is None:
        return None
    pointer = f"/{name}"
    try:
        return max(0, clock.now_ms() - clock.parse_duration(text, pointer=pointer))
    except ValidationFailed:
        return max(0, clock.parse_rfc3339(text, pointer=pointer))


class LogQuery(ListQuery):
    text: Annotated[
        LongText | None, Field(description="Word prefixes to find in messages, fields or ids; at most 500 characters.")
    ] = None
    level: Annotated[Level | None, Field(description="Only lines of this level or a more severe one.")] = None
    source: Annotated[Name | None, Field(description=(
        "Only lines from this origin, such as `step`, `process` or `integration`; at most 200 characters."
    ))] = None
    execution: Annotated[Name | None, Field(description="Only lines about this execution; `exe_…`.")] = None
    process: Annotated[
        Name | None, Field(description="Only lines about executions of this process; at most 200 characters.")
    ] = None
    since: Annotated[
        Moment | None, Field(description="Only lines at or after this RFC 3339 time, or of this duration up to now, such as `24h`.")
    ] = None
    until: Annotated[
        Moment | None, Field(description="Only lines before this RFC 3339 time, or before a duration ago, such as `1h`.")
    ] = None
    follow: Annotated[bool, Field(description="True to get a stream of server-sent events that continues with new lines.")] = False

    @property
    def filters(self) -> LineFilter:
        return LineFilter(
            text=self.text, level=self.level, source=self.source, execution_id=self.execution, process_id=self.process,
            since=parse_moment(self.since, "since"), until=parse_moment(self.until, "until"),
        )  # fmt: skip


@route(
    "GET", "/logs", scope="logs.read", returns=LineView, listed=True, query=LogQuery, acts=Acts("read_logs"),
    errors=(ValidationFailed,),
)  # fmt: skip
def list_logs(call: Call) -> Page[LineView] | Answer:
    """List log lines, newest first.

    With `follow=true` the answer is a stream of server-sent events instead: matching lines from `since` (default: now), or
    those after the `Last-Event-ID` of an interrupted stream.
    """
    query: LogQuery = call.query
    if query.follow:
        return Answer(Events(_follow(call, _tail(call, query))))
    return logs.list_lines(call.scope, query.filters, query.page).map(line_view)


def _tail(call: Call, query: LogQuery) -> Tail:
    """A tail that starts after the Last-Event-ID, which overrides `since`; without one, at `since` or now."""
    last_event_id = call.headers.get("last-event-id", "")
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 18):
            raise InvalidRequest("Last-Event-ID must be the id of an event of this stream", pointer="/Last-Event-ID")
        return Tail(call.scope, replace(query.filters, since=None), int(last_event_id))
    return Tail(call.scope, query.filters, 0 if query.since is not None else logs.last_number())


async def _follow(call: Call, tail: Tail) -> AsyncIterator[tuple[int | None, str, Any]]:
    """Yield matching lines as they are stored, until the caller disconnects or the key ends."""
    loop, scope = asyncio.get_running_loop(), call.scope

    def poll() -> list[Line] | None:
        return tail.read() if continued_access.is_still_allowed(scope, "logs.read") else None

    while (lines := await loop.run_in_executor(call.services.threads, poll)) is not None:
        for line in lines:  # A slow reader blocks here.
            yield line.number, "line", line_view(line).model_dump(exclude_none=True)
        if not tail.is_behind:
            await asyncio.sleep(call.services.limits.streams.poll_interval(POLL_SECONDS))


class AnalyticsQuery(Query):
    kind: Annotated[analytics.Kind, Field(description=(
        "What to measure: executions, their waiting times, steps, calls of integrations, or requests by key or WebApp."
    ))] = "execution"
    name: Annotated[Name | None, Field(description=(
        "Only this process, kind of step or integration, whichever `kind` counts; at most 200 characters."
    ))] = None
    since: Annotated[Moment, Field(description="The start: an RFC 3339 time, or a duration before now such as `24h`.")] = "24h"
    until: Annotated[
        Moment | None, Field(description="The end, exclusive: an RFC 3339 time or a duration before now. Default: now.")
    ] = None
    bucket: Annotated[
        Duration | None, Field(description="The width of a point, such as `5m`, `1h` or `1d`. Default: one that suits the period.")
    ] = None


@route("GET", "/logs/analytics", scope="logs.read", returns=AnalyticsView, query=AnalyticsQuery, errors=(ValidationFailed,))
def get_analytics(call: Call) -> AnalyticsView:
    """Show counts, durations and failures over time.

    `kind=execution` measures the time executions worked, from their start; `kind=waiting` the time that waiting executions
    spent waiting for people, times, events, other executions or another attempt.
    Points are as wide as `bucket`, but at least an hour for data older than two days and a day beyond 90 days.
    """
    query: AnalyticsQuery = call.query
    now = clock.now_ms()
    window = analytics.Window(
        parse_moment(query.since, "since") or 0, parse_moment(query.until, "until") or now + 1,
        clock.parse_duration(query.bucket, pointer="/bucket") if query.bucket else None, query.kind, query.name,
    )  # fmt: skip
    series = analytics.read_series(call.scope, window)
    return AnalyticsView(
        kind=query.kind, since=clock.rfc3339(series.since), until=clock.rfc3339(series.until), bucket_ms=series.bucket,
        total=SummaryView(**_summary(series.total)),
        points=[PointView(at=clock.rfc3339(at), **_summary(point)) for at, point in series.points],
        names=[NameView(name=name, **_summary(summary)) for name, summary in series.names.items()],
    )  # fmt: skip


@route("GET", "/logs/queues", scope="logs.read", returns=QueueView)
def get_queues(call: Call) -> QueueView:
    """Show the queue, workers and sandbox.

    The queue with its depth, oldest age and lag, and executions in flight, waiting and scheduled.
    """
    pool = call.services.sandbox
    confined = pool.protections()
    protections = [ProtectionView(holds=holds, text=text) for holds, text in confined.lines()] if confined is not None else []
    runtimes = [RuntimeView(name=each.name, state=each.state, message=each.describe()) for each in pool.runtimes()]
    sandbox = SandboxView(
        **pool.health(), restart_reasons=dict(pool.restarts()), protections=protections, runtimes=runtimes,
        starts_on_demand=pool.settings.starts_on_demand,
    )  # fmt: skip
    return QueueView(**call.services.processes.queue_state(call.scope), sandbox=sandbox)


class FailureQuery(ListQuery):
    state: Annotated[FailureState | None, Field(description="Only groups in this state.")] = None
    process: Annotated[Name | None, Field(description="Only failures of this process; at most 200 characters.")] = None


@route("GET", "/logs/failures", scope="logs.read", returns=FailureView, listed=True, query=FailureQuery)
def list_failures(call: Call) -> Page[FailureView]:
    """List failures grouped by cause.

    Grouped by process, step and cause, the most recent first.
    """
    query: FailureQuery = call.query
    groups = failures.list_failures(call.scope, query.page, state=query.state, process_id=query.process)
    return groups.map(failure_view)


@route("GET", "/logs/failures/{failure_id}", scope="logs.read", returns=FailureView)
def get_failure(call: Call, failure_id: str) -> FailureView:
    """Show one group of failures.

    The group has failures with the same cause: how many, when first and last, and the id of one execution to look at.
    """
    return failure_view(failures.get_failure(call.scope, failure_id))


class ChangeFailure(Body):
    state: Annotated[FailureState, Field(description=(
        "The new state: `acknowledged` while someone works on it, `resolved` once fixed, `open` to reopen it."
    ))]


@route("PATCH", "/logs/failures/{failure_id}", scope="processflow.execute", body=ChangeFailure, returns=FailureView)
def change_failure(call: Call, failure_id: str) -> FailureView:
    """Acknowledge, resolve or reopen a failure group.

    A new occurrence reopens a resolved group.
    """
    return failure_view(failures.set_state(call.scope, failure_id, call.body.state))


@route(
    "POST", "/logs/failures/{failure_id}/retry-all", scope="processflow.execute", returns=RetryAllView, atomic=False
)  # fmt: skip
def retry_failures(call: Call, failure_id: str) -> RetryAllView:
    """Retry every execution of a failure group.

    Each starts again from the step that failed.

    A call retries at most 200; repeat it while `remaining` is not 0, later if some are `waiting` because of a limit. Each
    execution is retried once this way. Skipped are executions that were already retried or deleted, that failed before the
    group was resolved, or that are retried together with the execution that waited for them.
    """
    result = failures.retry_all(call.scope, failure_id, FailureRetries(call.services.processes))
    return RetryAllView(
        retried=result.retried, refused=result.refused, waiting=list(result.waiting), remaining=result.remaining
    )  # fmt: skip


class AuditQuery(ListQuery):
    actor: Annotated[
        Name | None, Field(description="Only entries of this actor, such as `user:usr_…` or `key:key_…`; at most 200 characters.")
    ] = None
    action: Annotated[
        Name | None, Field(description="Only entries with this action, such as `approval.request`; at most 200 characters.")
    ] = None
    subject: Annotated[
        LongText | None, Field(description="Only entries about this resource, by its id or name; at most 500 characters.")
    ] = None
    since: Annotated[Moment | None, Field(description=(
        "Only entries at or after this RFC 3339 time, or of this duration up to now, such as `24h`."
    ))] = None
    until: Annotated[
        Moment | None, Field(description="Only entries before this RFC 3339 time, or before a duration ago, such as `1h`.")
    ] = None


@route("GET", "/logs/audit", scope="logs.read", returns=AuditView, listed=True, query=AuditQuery, errors=(ValidationFailed,))
def list_audit(call: Call) -> Page[AuditView]:
    """List the audit trail.

    Newest first; the hash of each entry covers that of the entry before it.
    """
    query: AuditQuery = call.query
    since, until = parse_moment(query.since, "since"), parse_moment(query.until, "until")
    filters = audit.AuditFilter(query.actor, query.action, query.subject, since, until)
    return audit.list_entries(call.scope, filters, query.page).map(audit_view)


def audit_view(entry: Any) -> AuditView:
    """The view of an entry in the trail of a tenant, or of the appliance."""
    members: Mapping[str, Any] = entry.__data__
    return AuditView(**{**members, "at": clock.rfc3339(entry.at)})


@route("GET", "/logs/audit/verify", scope="logs.read", returns=VerdictView)
def verify_audit(call: Call) -> VerdictView:
    """Verify the audit trail.

    Recomputes its hashes, to show that no entry was changed, removed or inserted.
    """
    return verdict_view(audit.verify(call.scope))


def verdict_view(verification: ChainStatus) -> VerdictView:
    """The result of verifying a trail."""
    return VerdictView(
        intact=verification.intact, entries=verification.entries, first_seq=verification.first_seq, last_seq=verification.last_seq,
        broken_seq=verification.broken_seq, reason=verification.reason,
    )  # fmt: skip
