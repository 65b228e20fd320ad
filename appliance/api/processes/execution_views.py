"""Views of executions and their step runs, log lines and journal."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import NULL, View
from appliance.core import clock
from appliance.monitor import logs
from appliance.processes import Execution, JournalRow, StepRunRow
from appliance.processes.executions import service as executions
from appliance.processes.host import redact_answer, shorten

SHOWN_TIMES = 100
Status = Literal[
    "scheduled", "queued", "running", "waiting", "cancelling", "succeeded", "failed", "cancelled", "timed_out", "expired"
]
StepId = Annotated[str, Field(description="Identifies the step within the definition of its process.")]
StepPath = Annotated[
    str, Field(description="The place of the step in the definition: the ids of the blocks around it and its own, joined by `/`.")
]
Iteration = Annotated[str | None, Field(description=(
    "The index of the `for_each` item, from 0; nested ones joined by dots, outermost first (`3.0`). Absent elsewhere."
))]
StepKind = Annotated[str, Field(description="What the step does, such as `code`, `rule`, `integration`, `for_each` or `human`.")]
StepError = Annotated[dict[str, Any] | None, Field(description=(
    "Why the step failed: `code`, `failure_class`, `message`, `retryable` and `next`. Absent unless it failed."
))]


class PlaceView(View):
    """The place of a queued execution in its queue."""

    position: Annotated[int, Field(description=(
        "The place in the tenant's queue, from 1; executions that wait for a slot or a paused process queue apart."
    ))]
    ahead: Annotated[int, Field(description="How many executions of that queue start before this one.")]
    enqueued_at: Annotated[str, Field(description="When the execution joined the queue; RFC 3339, UTC.")]


class UndoneView(View):
    """A step run that was undone, or with `error`, one that could not be undone."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    error: Annotated[dict[str, Any] | None, Field(description=(
        "Why the step could not be undone: `code` and `message`. Absent if it was undone."
    ))] = None


class CompensationView(View):
    """What follows a failure or cancellation: the steps that were undone, those that could not be, and the execution that
    handles the failure.  Until the execution is finished, `status` and `error` say how it will end.
    """

    status: Annotated[str | None, Field(description=(
        "The status that the execution ends with, such as `failed`. Absent if there was nothing to undo."
    ))] = None
    error: Annotated[dict[str, Any] | None, Field(description=(
        "The error that the execution ends with. Absent if it was cancelled or there was nothing to undo."
    ))] = None
    undone: Annotated[list[UndoneView], Field(description="The step runs whose `undo` succeeded.")] = Field(default_factory=list)
    not_undone: Annotated[
        list[UndoneView], Field(description="The step runs whose `undo` failed or was not reached, each with its error.")
    ] = Field(default_factory=list)
    handler: Annotated[dict[str, Any] | None, Field(description=(
        "The execution that handles the failure: `process_id` and `execution_id`, or `error` if it could not be started."
    ))] = None


class ExecutionView(View):
    """One run of a process version. Members that do not apply yet are absent."""

    execution_id: Annotated[str, Field(description="Identifies the execution; `exe_…`.")]
    process_id: Annotated[str, Field(description="The slug of the process that was executed.")]
    version: Annotated[int, Field(description="The number of the process version that runs.")]
    status: Annotated[Status, Field(description=(
        "The stage of the execution; the last five are final, and `cancelling` lasts until the current step stops."
    ))]
    wait_reason: Annotated[str | None, Field(description=(
        "What it waits for: `approval`, `input`, `timer`, `event`, `retry`, `child`, `slot` or `paused`. Absent if it does not "
        "wait."
    ))] = None
    waiting_for: Annotated[dict[str, Any] | None, Field(description=(
        "What it waits for in detail: `until` and, for each open call, an entry in `waits` with its token or approval. Absent "
        "otherwise."
    ))] = None
    input: Annotated[
        dict[str, Any], Field(description="The input that the execution was started with, which matches the schema of the process.")
    ]
    output: Annotated[
        Any, Field(description="What the execution returned; null if it succeeded without a result, absent until it succeeds.")
    ] = None
    error: Annotated[dict[str, Any] | None, Field(description=(
        "Why it failed: `code`, `failure_class`, `message`, `retryable`, `next` and, where known, `step` and `position`. Absent "
        "otherwise."
    ))] = None
    queue: Annotated[PlaceView | None, Field(description="The place in the queue; absent unless the status is `queued`.")] = None
    label: Annotated[str | None, Field(description=(
        "A text of the caller's to find the execution by, 1 to 200 characters. Absent if it has none."
    ))] = None
    retry_of: Annotated[
        str | None, Field(description="The execution that this one retries; `exe_…`. Absent if it is not a retry.")
    ] = None
    parent: Annotated[str | None, Field(description=(
        "The execution whose step started this one; `exe_…`. Absent if a caller or a trigger started it."
    ))] = None
    handles: Annotated[str | None, Field(description=(
        "The failed execution that this one handles as its `on_failure`; `exe_…`. Absent if there is none."
    ))] = None
    aftermath: Annotated[CompensationView | None, Field(description=(
        "What was undone after a failure or cancellation, and what handles it. Absent if there was nothing to undo or handle."
    ))] = None
    run_at: Annotated[
        str | None, Field(description="When it is due to start; RFC 3339, UTC. Only while the status is `scheduled`.")
    ] = None
    expires_at: Annotated[str | None, Field(description=(
        "If it has not started by then it ends as `expired`; RFC 3339, UTC. Absent without such a limit and once started."
    ))] = None
    created_at: Annotated[str, Field(description="When the request to execute was accepted; RFC 3339, UTC.")]
    started_at: Annotated[str | None, Field(description="When its first step began; RFC 3339, UTC. Absent before.")] = None
    finished_at: Annotated[str | None, Field(description="When it reached a final status; RFC 3339, UTC. Absent before.")] = None
    duration_ms: Annotated[int | None, Field(description=(
        "Milliseconds from `started_at` to `finished_at`, waiting included. Absent until it is finished."
    ))] = None
    links: Annotated[
        dict[str, str], Field(description="Paths on this host for the execution: `self`, `steps`, `logs` and `events`.")
    ]


class StepRunView(View):
    """One step of an execution with all its attempts; inside a `for_each` there is one for each item."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    kind: StepKind
    status: Annotated[str, Field(description=(
        "The stage of the step run, such as `running`, `waiting`, `retrying`, `succeeded`, `failed`, `skipped` or `cancelled`."
    ))]
    attempt: Annotated[int, Field(description="The number of the current or last attempt, from 1.")]
    result_source: Annotated[str, Field(description=(
        "Where the output comes from: `executed`, `cached`, `mocked`, `replayed`, or `reused` from the retried execution."
    ))]
    input: Annotated[Any, Field(description="The input of the step; absent where it is that of the execution.")] = None
    output: Annotated[
        Any, Field(description="What the step returned; null if it succeeded without a result or was skipped, absent until then.")
    ] = None
    error: StepError = None
    started_at: Annotated[str | None, Field(description="When the first attempt began; RFC 3339, UTC. Absent before.")] = None
    finished_at: Annotated[str | None, Field(description="When the step run ended; RFC 3339, UTC. Absent before.")] = None
    duration_ms: Annotated[int | None, Field(description=(
        "Milliseconds from `started_at` to `finished_at`, pauses between attempts included. Absent until it ended."
    ))] = None
    next_run_at: Annotated[
        str | None, Field(description="When the next attempt or the end of a timed wait is due; RFC 3339, UTC. Absent otherwise.")
    ] = None


class LogLineView(View):
    """One line of an execution's log."""

    at: Annotated[str, Field(description="When the line was written; RFC 3339, UTC.")]
    level: Annotated[str, Field(description="The severity: `debug`, `info`, `warn` or `error`.")]
    source: Annotated[
        str, Field(description="What wrote the line, such as `step` for code, `process`, `integration` or `trigger`.")
    ]
    message: Annotated[str, Field(description="What was logged, as text for people; structured data is in `fields`.")]
    fields: Annotated[Any, Field(description="Structured data that was logged with the message; absent if there was none.")] = None
    execution_id: Annotated[str | None, Field(description="The execution that the line belongs to; `exe_…`.")] = None
    step: Annotated[
        str | None, Field(description="The id of the step that wrote the line; absent for lines about the whole execution.")
    ] = None
    request_id: Annotated[
        str | None, Field(description="The request that caused the line; equal to its `X-Request-Id`. Absent if no request did.")
    ] = None


class JournalView(View):
    """One recorded host call; `position` is the order in which the code received the answers, -1 while there is no answer.

    `clock` lists the times the code read before the call.  The entry with `call` 0 and the method `end` closes an attempt: its
    answer has the `seed` of Math.random, and its `clock` the times read after the last call.
    Long values are cut; `shortened` has their full sizes, in bytes or in number of clock values.
    """

    path: StepPath
    iteration: Iteration = None
    attempt: Annotated[int, Field(description="The attempt of the step that made the call, from 1.")]
    call: Annotated[
        int, Field(description="The number of the call within the attempt, from 1; 0 for the entry that closes the attempt.")
    ]
    position: Annotated[
        int, Field(description="The order in which the code received the answers of the attempt; -1 while there is no answer.")
    ]
    method: Annotated[
        str, Field(description="The host function that was called, such as `datapool.query`; `end` closes an attempt.")
    ]
    args: Annotated[
        Any, Field(description="The arguments of the call, with secrets sealed; the start of their JSON if they exceed 64 KiB.")
    ]
    ok: Annotated[bool, Field(description="Whether the call succeeded; if not, `answer` is the error that the code received.")]
    answer: Annotated[Any, Field(description=(
        "What the code received: the result or the error. The start of its JSON if it exceeds 64 KiB; null if there was none."
    ))] = None
    clock: Annotated[list[str], Field(description=(
        "The times that the code read before this call, oldest first; RFC 3339, UTC. At most 100 are shown."
    ))]
    shortened: Annotated[dict[str, int] | None, Field(description=(
        "The full sizes of what was cut: `args` and `answer` in bytes, `clock` as a number of times. Absent if nothing was cut."
    ))] = None
    at: Annotated[str, Field(description="When the entry was recorded; RFC 3339, UTC.")]


def place_view(place: executions.QueuePlace) -> PlaceView:
    return PlaceView(position=place.position, ahead=place.ahead, enqueued_at=clock.rfc3339(place.enqueued_at))


def _output(row: Execution | StepRunRow) -> Any:
    """The output; an explicit null once the execution or step has succeeded without one."""
    return NULL if row.output is None and row.status in ("succeeded", "skipped") else row.output


def execution_view(row: Execution) -> ExecutionView:
    place = executions.find_queue_place(row)
    base = f"/api/v1/processes/{row.process_id}/executions/{row.id}"
    return ExecutionView(
        execution_id=row.id, process_id=row.process_id, version=row.version, status=row.status, wait_reason=row.wait_reason,
        waiting_for=row.waiting_for, input=row.input, output=_output(row), error=row.error, label=row.label_text,
        retry_of=row.retry_of, parent=row.parent, handles=row.handles, aftermath=_to_compensation(row),
        queue=place_view(place) if place else None,
        run_at=clock.optional_rfc3339(row.next_run_at) if row.status == "scheduled" else None,
        expires_at=clock.optional_rfc3339(row.expires_at) if row.started_at is None else None,
        created_at=clock.rfc3339(row.created_at), started_at=clock.optional_rfc3339(row.started_at),
        finished_at=clock.optional_rfc3339(row.finished_at),
        duration_ms=row.finished_at - row.started_at if row.finished_at and row.started_at else None,
        links={"self": base, "steps": f"{base}/steps", "logs": f"{base}/logs", "events": f"{base}/events"},
    )  # fmt: skip


def _to_compensation(row: Execution) -> CompensationView | None:
    stored = row.aftermath
    if stored is None:
        return None
    return CompensationView(
        status=stored.get("status"), error=stored.get("error"), handler=stored.get("handler"),
        undone=[UndoneView(**each) for each in stored.get("undone", ())],
        not_undone=[UndoneView(**each) for each in stored.get("not_undone", ())],
    )  # fmt: skip


def step_view(row: StepRunRow) -> StepRunView:
    return StepRunView(
        step=row.step, path=row.path, iteration=row.iteration or None, kind=row.kind, status=row.status, attempt=row.attempt,
        result_source=row.result_source, input=row.input, output=_output(row), error=row.error,
        started_at=clock.optional_rfc3339(row.started_at), finished_at=clock.optional_rfc3339(row.finished_at),
        duration_ms=row.finished_at - row.started_at if row.finished_at and row.started_at else None,
        next_run_at=clock.optional_rfc3339(row.next_run_at),
    )  # fmt: skip


def journal_view(row: JournalRow) -> JournalView:
    args, args_size = shorten(row.args)
    answer, answer_size = shorten(redact_answer(row.method, bool(row.ok), row.answer))
    sizes = {"args": args_size, "answer": answer_size, "clock": len(row.clock) if len(row.clock) > SHOWN_TIMES else None}
    return JournalView(
        path=row.path, iteration=row.iteration or None, attempt=row.attempt, call=row.call, position=row.position,
        method=row.method, args=args, ok=bool(row.ok), answer=NULL if answer is None else answer,
        clock=[clock.rfc3339(value) for value in row.clock[:SHOWN_TIMES]],
        shortened={name: size for name, size in sizes.items() if size is not None} or None, at=clock.rfc3339(row.at),
    )  # fmt: skip


def log_line_view(line: logs.Line) -> LogLineView:
    return LogLineView(
        at=clock.rfc3339(line.at), level=line.level, source=line.source, message=line.message, fields=line.fields,
        execution_id=line.execution_id, step=line.step, request_id=line.request_id,
    )  # fmt: skip
