"""/api/v1/processes/{id}/execute and executions: start, list, follow, cancel, retry and resume."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.pending import PendingCall
from appliance.api.frame.routing import Acts, Answer, Body, Call, Events, Json, ListQuery, Query, route
from appliance.api.frame.tool_arguments import execution_arguments
from appliance.api.tenants.tenants import NoQuery
from appliance.core import clock
from appliance.core.errors import (
    ConcurrencyLimited,
    Conflict,
    Draining,
    ExecutionFinished,
    NotFound,
    NotPublished,
    ValidationFailed,
)
from appliance.core.pages import Page
from appliance.core.scope import TenantScope
from appliance.monitor import logs
from appliance.processes import Execution, Waiter
from appliance.processes.definitions import versions
from appliance.processes.engine import FINISHED, completion
from appliance.processes.executions import MAX_TEXT, EventAnswer, ExecutionFilter, StartedBy, StartRequest, pausing
from appliance.processes.executions import service as executions
from appliance.tenants.grants import continued_access
from appliance.web import in_thread, start_and_record

from .execution_views import (
    ExecutionView,
    JournalView,
    LogLineView,
    Status,
    StepRunView,
    execution_view,
    journal_view,
    log_line_view,
    step_view,
)

POLL_SECONDS = 0.2
FailureClass = Literal["user_code", "connector", "policy", "memory", "timeout", "validation", "system"]


_WAIT = "Seconds to wait for the result: the answer is 200 if the execution has finished by then, else 202."
_RUN_AT = "When to start, such as 2027-01-31T06:00:00Z, at most a year ahead; default: at once."
_LABEL = "A text to find the execution by, such as an order number."
_EXPIRES = "If the execution has not started after this time, such as 10m or 48h, it becomes `expired`."


class ExecuteQuery(Query):
    wait: Annotated[float, Field(ge=0, le=60, description=_WAIT)] = 0
    version: Annotated[int, Field(ge=1, le=10**9, description="A version instead of the published one.")] | None = None
    run_at: Annotated[str, Field(description=_RUN_AT)] | None = None
    priority: Annotated[int, Field(ge=-10, le=10, description="Queued executions with the highest priority start first.")] = 0
    label: Annotated[str, Field(min_length=1, max_length=200, description=_LABEL)] | None = None
    expires_in: Annotated[str, Field(max_length=30, description=_EXPIRES)] | None = None


class ExecutionsQuery(ListQuery):
    status: Annotated[Status | None, Field(description="Only executions with this status.")] = None
    label: Annotated[str | None, Field(description="Only executions with exactly this label.")] = None
    failure_class: Annotated[FailureClass | None, Field(description="Only executions that failed for this kind of reason.")] = None
    since: Annotated[str | None, Field(description="Only executions created at or after this time; RFC 3339.")] = None
    until: Annotated[str | None, Field(description="Only executions created before this time; RFC 3339.")] = None
    q: Annotated[str | None, Field(min_length=1, max_length=500, description=(
        "A value of the input, such as `10248`, or a path and its value, such as `order.number=10248`; whole values of up to 200 "
        "characters."
    ))] = None
    version: Annotated[int | None, Field(ge=1, le=10**9, description="Only executions of this version of the process.")] = None
    text: Annotated[str | None, Field(min_length=1, max_length=MAX_TEXT, description=(
        "An execution's id, a part of its label, an error code or a value of its input; at most 200 characters."
    ))] = None
    failed_step: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Only executions that failed at the step with this id.")
    ] = None
    took_at_least: Annotated[str | None, Field(max_length=30, description=(
        "Only finished executions that took this long or longer, from start to end; a duration such as `10s` or `5m`."
    ))] = None
    started_by: Annotated[StartedBy | None, Field(description=(
        "Only executions started by a person, an API key, a trigger, a WebApp's visitor, an agent's run or another execution."
    ))] = None


class SearchQuery(ExecutionsQuery):
    process_id: Annotated[str | None, Field(description="Only executions of the process with this slug.")] = None
    execution_id: Annotated[str | None, Field(description="Only the execution with this id; `exe_…`.")] = None


class Retry(Body):
    """Where a retry starts, and which version it runs."""

    from_: Annotated[str, Field(alias="from", min_length=1, max_length=500, description=(
        "`failed` keeps every step that succeeded, `start` keeps none, and a step's id or path keeps the steps before it."
    ))] = "failed"
    version: Annotated[Literal["original", "published"], Field(description=(
        "`original` runs the version that was executed, `published` the version that is published now."
    ))] = "original"


class Relabel(Body):
    """The label to give an execution."""

    label: Annotated[
        str | None, Field(min_length=1, max_length=200, description="The new label, 1 to 200 characters; null removes it.")
    ]


class Resume(Body):
    """The event to deliver."""

    token: Annotated[str, Field(min_length=1, max_length=100, description=(
        "The token of the awaited event, from `waiting_for.waits` of the execution; `wai_…`."
    ))]
    input: Annotated[Any, Field(description=(
        "The data of the event, which becomes the answer of `api.events.wait` or the output of the step; any JSON, default null."
    ))] = None


def _start_request(call: Call) -> StartRequest:
    query: ExecuteQuery = call.query
    run_at = clock.parse_rfc3339(query.run_at, pointer="/run_at") if query.run_at else None
    if run_at is not None and run_at > clock.now_ms() + 366 * 86_400_000:
        raise ValidationFailed("`run_at` is more than a year ahead; choose an earlier time", pointer="/run_at")
    expires_ms = clock.parse_duration(query.expires_in, pointer="/expires_in") if query.expires_in else None
    if expires_ms is not None and not 1 <= expires_ms <= 366 * 86_400_000:
        raise ValidationFailed("`expires_in` must be greater than zero and at most a year", pointer="/expires_in")
    return StartRequest(
        input=call.body, version=query.version, run_at=run_at, priority=query.priority, label=query.label, token=call.token,
        expires_ms=expires_ms,
    )


@route(
    "POST", "/processes/{process_id}/execute", scope="processflow.execute", query=ExecuteQuery, returns=ExecutionView,
    status=202, also={200: ExecutionView}, body=Json("object", "The input object of the process."), atomic=False, pending=True,
    acts=Acts("execute_process", arguments=execution_arguments), errors=(ConcurrencyLimited, Conflict, Draining, NotPublished),
)  # fmt: skip
async def execute_process(pending: PendingCall, process_id: str) -> Answer:
    """Execute a process.

    Answers 202 with the position in the queue, or 200 with the result when the execution finishes within `wait` seconds. An
    execution that fails within `wait` is still answered with 200, with `status: failed` and `error`.
    """
    threads = pending.services.threads
    if "wait" in pending.request.args:
        row = await _start_and_wait(pending, process_id)
    else:
        row = await in_thread(threads, _start, pending, process_id)
    pending.call.end_turn()
    view = await in_thread(threads, execution_view, row) if row.status == "queued" else execution_view(row)
    headers = {"Location": view.links["self"]}
    return Answer(view, status=200 if row.status in FINISHED else 202, headers=headers)


def _start(pending: PendingCall, process_id: str, waiter: Waiter | None = None) -> Execution:
    call = pending.begin()
    waiter = waiter if call.query.wait else None
    return call.services.processes.start_execution(call.scope, process_id, _start_request(call), waiter=waiter)


async def _start_and_wait(pending: PendingCall, process_id: str) -> Execution:
    """Start an execution in turn, and return its row when it has finished or the time to wait for that is over."""
    over = asyncio.Event()
    on_finished: Callable[[], Any] = partial(asyncio.get_running_loop().call_soon_threadsafe, over.set)
    start = partial(_start, pending, process_id)
    async with pending.services.limits.starts.turn(pending.request.tenant) as end_turn:
        row = await start_and_record(pending.services, start, on_finished)
        call = pending.call
        if row.status in FINISHED or not call.query.wait:
            return row
        call.end_turn()
        if row.status != "running":
            end_turn()
        try:
            with call.services.limits.streams.waiting(call.place):
                # A paused process may stay paused for long, so the caller gets the answer at once.
                await asyncio.wait_for(over.wait(), 0 if row.wait_reason == pausing.PAUSED else call.query.wait)
        except TimeoutError:
            completion.completion_signal.unsubscribe(row.id, on_finished)
    return await in_thread(call.services.threads, executions.get_execution, call.scope, row.id)


def _filter(query: Any, process_id: str | None, execution_id: str | None = None) -> ExecutionFilter:
    return ExecutionFilter(
        process_id=process_id, status=query.status, label=query.label, failure_class=query.failure_class,
        since=clock.parse_rfc3339(query.since, pointer="/since") if query.since else None,
        until=clock.parse_rfc3339(query.until, pointer="/until") if query.until else None, id=execution_id, search=query.q,
        version=query.version, text=query.text, step=query.failed_step,
        took_ms=clock.parse_duration(query.took_at_least, pointer="/took_at_least") if query.took_at_least else None,
        by=query.started_by,
    )  # fmt: skip


@route(
    "GET", "/processes/{process_id}/executions", scope="processflow.read", query=ExecutionsQuery, returns=ExecutionView,
    listed=True, errors=(ValidationFailed,),
)  # fmt: skip
def list_executions(call: Call, process_id: str) -> Page[ExecutionView]:
    """List the executions of a process.

    The newest come first; `sort` takes `created_at` and `id`. `q` finds executions by a value of their input: `q=10248`
    anywhere, `q=order.number=10248` in that member. Up to twenty values of each input are indexed, outer ones first: texts of at
    most 200 characters, numbers and booleans. The other parameters narrow the list further.
    """
    versions.get_process(call.scope, process_id)
    return executions.list_executions(call.scope, _filter(call.query, process_id), call.query.page).map(execution_view)


@route(
    "GET", "/executions", scope="processflow.read", query=SearchQuery, returns=ExecutionView, listed=True,
    errors=(ValidationFailed,),
)  # fmt: skip
def search_executions(call: Call) -> Page[ExecutionView]:
    """Search the executions of all processes.

    The newest come first; `sort` takes `created_at` and `id`. `q` finds executions by a value of their input, as in the list of
    one process.
    """
    filters = _filter(call.query, call.query.process_id, call.query.execution_id)
    return executions.list_executions(call.scope, filters, call.query.page).map(execution_view)


_EXECUTION_PATH = "/processes/{process_id}/executions/{execution_id}"


@route("GET", _EXECUTION_PATH, scope="processflow.read", returns=ExecutionView, acts=Acts("get_execution"))
def get_execution(call: Call, process_id: str, execution_id: str) -> ExecutionView:
    """Show an execution.

    While it is queued, the answer has its position in the queue.
    """
    return execution_view(executions.get_execution(call.scope, execution_id, process_id))


@route("PATCH", _EXECUTION_PATH, scope="processflow.execute", body=Relabel, returns=ExecutionView)
def change_execution(call: Call, process_id: str, execution_id: str) -> ExecutionView:
    """Change or remove the label of an execution.

    Null removes it. The execution's own code still sees the label it was started with.
    """
    return execution_view(executions.change_label(call.scope, execution_id, process_id, call.body.label))


@route("GET", f"{_EXECUTION_PATH}/steps", scope="processflow.read", returns=StepRunView, listed=True)
def list_steps(call: Call, process_id: str, execution_id: str) -> Page[StepRunView]:
    """List the step runs of an execution.

    They come in the order in which they started, with input, output, attempts and errors.
    """
    row = executions.get_execution(call.scope, execution_id, process_id)
    return executions.page_steps(call.scope, row, call.query.page).map(step_view)


@route("GET", f"{_EXECUTION_PATH}/logs", scope="processflow.read", returns=LogLineView, listed=True, errors=(ValidationFailed,))
def list_execution_logs(call: Call, process_id: str, execution_id: str) -> Page[LogLineView]:
    """List the log lines of an execution.

    The newest come first; `sort=at` begins with the oldest.
    """
    executions.get_execution(call.scope, execution_id, process_id)
    filters = logs.LineFilter(execution_id=execution_id)
    return logs.list_lines(call.scope, filters, call.query.page).map(log_line_view)


@route("GET", f"{_EXECUTION_PATH}/journal", scope="processflow.read", returns=JournalView, listed=True)
def list_journal(call: Call, process_id: str, execution_id: str) -> Page[JournalView]:
    """List the recorded host calls of an execution.

    Each has its answer and the clock values that the code read; the entry that closes an attempt has the seed of its random
    numbers.
    """
    row = executions.get_execution(call.scope, execution_id, process_id)
    return executions.list_journal(call.scope, row, call.query.page).map(journal_view)


@route(
    "GET", f"{_EXECUTION_PATH}/events", scope="processflow.read", media="text/event-stream", query=NoQuery,
    errors=(ValidationFailed,),
)  # fmt: skip
async def follow_execution(call: Call, process_id: str, execution_id: str) -> Answer:
    """Stream the events of an execution.

    Server-sent events, until the execution is finished. Send `Last-Event-ID` to resume an interrupted stream.
    """
    loop = asyncio.get_running_loop()
    read = partial(executions.get_execution, call.scope, execution_id, process_id)
    await loop.run_in_executor(call.services.threads, read)
    last = call.headers.get("last-event-id", "0")
    if not last.isascii() or not last.isdigit() or len(last) > 18:
        raise ValidationFailed("Last-Event-ID must be the id of an event of this stream", pointer="/Last-Event-ID")
    return Answer(Events(_events(call, execution_id, int(last))))


async def _events(call: Call, execution_id: str, last: int) -> AsyncIterator[tuple[int, str, Any]]:
    loop, is_over = asyncio.get_running_loop(), False
    while True:
        events = await loop.run_in_executor(call.services.threads, partial(_events_after, call.scope, execution_id, last))
        if events is None:
            return
        for event in events:
            last = event.id
            yield event.id, event.type, {"at": clock.rfc3339(event.at), "execution_id": execution_id, **event.data}
            if event.type in FINISHED:
                return
        if events:
            continue
        if is_over:
            return
        is_over = await loop.run_in_executor(call.services.threads, partial(_is_over, call, execution_id))
        if not is_over:  # otherwise its last events may have come since they were read
            await asyncio.sleep(call.services.limits.streams.poll_interval(POLL_SECONDS))


def _events_after(scope: TenantScope, execution_id: str, last: int) -> Sequence[Any] | None:
    """The events after `last`; None once the stream's key may no longer read."""
    if not continued_access.is_still_allowed(scope, "processflow.read"):
        return None
    return executions.events_after(scope, execution_id, last)


def _is_over(call: Call, execution_id: str) -> bool:
    """Whether no more events will follow, because the execution is finished or deleted."""
    try:
        row = executions.get_execution(call.scope, execution_id)
    except NotFound:
        return True
    return row.status in FINISHED


@route("POST", f"{_EXECUTION_PATH}/cancel", scope="processflow.execute", returns=ExecutionView, errors=(ExecutionFinished,))
def cancel_execution(call: Call, process_id: str, execution_id: str) -> ExecutionView:
    """Cancel an execution.

    One in progress is `cancelling` until its step stops; what it has done and can be undone is then undone.
    """
    return execution_view(call.services.processes.cancel_execution(call.scope, execution_id, process_id))


@route(
    "POST", f"{_EXECUTION_PATH}/retry", scope="processflow.execute", body=Retry, returns=ExecutionView, status=202,
    errors=(ConcurrencyLimited, Conflict, Draining, NotPublished),
)  # fmt: skip
def retry_execution(call: Call, process_id: str, execution_id: str) -> Answer:
    """Retry a finished execution as a new one.

    With `from`, `failed` keeps every step that succeeded, `start` keeps none, and a step's id or path keeps the steps before
    it. Inside a branch, a parallel or a for_each, the steps before it are kept at each level and for every item, and so are
    steps in other branches. `retry-plan` shows what would run again.
    """
    body: Retry = call.body
    row = call.services.processes.retry_execution(
        call.scope, execution_id, start_from=body.from_, published=body.version == "published", process_id=process_id,
        token=call.token,
    )  # fmt: skip
    view = execution_view(row)
    return Answer(view, headers={"Location": view.links["self"]})


@route(
    "POST", f"{_EXECUTION_PATH}/resume", scope="processflow.execute", body=Resume, returns=ExecutionView, status=202,
    errors=(Conflict, ExecutionFinished),
)  # fmt: skip
def resume_execution(call: Call, process_id: str, execution_id: str) -> Answer:
    """Deliver an event that an execution awaits.

    `token` is the event's token in `waiting_for.waits`; `input` becomes the answer of `api.events.wait`. Decisions by people are
    made in the console instead.
    """
    body: Resume = call.body
    row = call.services.processes.resume_execution(call.scope, execution_id, process_id, EventAnswer(body.token, body.input))
    return Answer(execution_view(row))
