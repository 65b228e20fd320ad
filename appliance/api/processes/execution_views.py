"""Views of executions and their step runs, log lines and journal."""

from typing import Any, Literal

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


class PlaceView(View):
    position: int
    ahead: int
    enqueued_at: str


class UndoneView(View):
    """A step run that was undone, or with `error`, one that could not be undone."""

    step: str
    path: str
    iteration: str | None = None
    error: dict[str, Any] | None = None


class CompensationView(View):
    """What follows a failure or cancellation: the steps that were undone, those that could not be, and the execution that
    handles the failure.  Until the execution is finished, `status` and `error` say how it will end.
    """

    status: str | None = None
    error: dict[str, Any] | None = None
    undone: list[UndoneView] = Field(default_factory=list)
    not_undone: list[UndoneView] = Field(default_factory=list)
    handler: dict[str, Any] | None = None


class ExecutionView(View):
    execution_id: str
    process_id: str
    version: int
    status: Status
    wait_reason: str | None = None
    waiting_for: dict[str, Any] | None = None
    input: dict[str, Any]
    output: Any = None
    error: dict[str, Any] | None = None
    queue: PlaceView | None = None
    label: str | None = None
    retry_of: str | None = None
    parent: str | None = None
    handles: str | None = None
    aftermath: CompensationView | None = None
    run_at: str | None = None
    expires_at: str | None = None
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    duration_ms: int | None = None
    links: dict[str, str]


class StepRunView(View):
    step: str
    path: str
    iteration: str | None = None
    kind: str
    status: str
    attempt: int
    result_source: str
    input: Any = None
    output: Any = None
    error: dict[str, Any] | None = None
    started_at: str | None = None
    finished_at: str | None = None
    duration_ms: int | None = None
    next_run_at: str | None = None


class LogLineView(View):
    at: str
    level: str
    source: str
    message: str
    fields: Any = None
    execution_id: str | None = None
    step: str | None = None
    request_id: str | None = None


class JournalView(View):
    """One recorded host call; `position` is the order in which the code received the answers, -1 while there is no answer.

    `clock` lists the times the code read before the call.  The entry with `call` 0 and the method `end` closes an attempt: its
    answer has the `seed` of Math.random, and its `clock` the times read after the last call.
    Long values are cut; `shortened` has their full sizes, in bytes or in number of clock values.
    """

    path: str
    iteration: str | None = None
    attempt: int
    call: int
    position: int
    method: str
    args: Any
    ok: bool
    answer: Any = None
    clock: list[str]
    shortened: dict[str, int] | None = None
    at: str


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
