"""/api/v1/agents/{id}/runs: start, follow and cancel runs, and read their traces."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.agents import Entry, Run, RunRequest, runs
from appliance.api.frame.routing import Answer, Body, Call, Events, ListQuery, View, route
from appliance.api.processes.executions import POLL_SECONDS
from appliance.api.tenants.tenants import NoQuery
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page
from appliance.tenants.grants import continued_access

Status = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
_RUN_PATH = "/agents/{agent_id}/runs/{run_id}"


class StartRun(Body):
    """`input` is the agent's task: a text, or an object, which the model receives as JSON.

    `tainted_by` names outside sources that parts of the input come from, such as `mail`; the run then starts tainted.
    """

    input: Annotated[str, Field(min_length=1)] | dict[str, Any]
    version: Annotated[int, Field(ge=1, le=10**9)] | None = None
    tainted_by: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)] = Field(default=[])


class RunsQuery(ListQuery):
    status: Status | None = None


class RunUsage(View):
    """Usage of a run so far; `cost` is in the currency of the model's prices."""

    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float


class LoadedView(View):
    """A skill that a run has loaded."""

    name: str
    digest: str
    is_trusted: bool


class StepOriginView(View):
    """The process step that started a run and waits for its result."""

    execution_id: str
    process_id: str
    step: str
    path: str
    iteration: str
    attempt: int


class RunView(View):
    """A run of an agent.  `tainted_by` lists the outside sources it has read, `waiting_for` says what it is waiting for, and
    `origin` is the process step that started it."""

    run_id: str
    agent_id: str
    version: int
    status: Status
    waiting_for: dict[str, Any] | None = None
    input: Any
    output: Any = None
    error: dict[str, Any] | None = None
    usage: RunUsage
    skills: list[LoadedView]
    tainted_by: list[str]
    started_by: str
    origin: StepOriginView | None = None
    is_cancelling: bool
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    links: dict[str, str]


class TraceView(View):
    """One event in a run's trace; `call` numbers the tool calls of a turn, starting at 1."""

    number: int
    kind: Literal["asked", "answered", "unanswered", "called", "dispatched", "returned", "waiting", "resumed", "ended"]
    turn: int
    call: int
    at: str
    data: dict[str, Any]


def run_view(run: Run) -> RunView:
    own = f"/api/v1/agents/{run.agent_id}/runs/{run.id}"
    return RunView(
        run_id=run.id, agent_id=run.agent_id, version=run.version, status=run.status, waiting_for=run.waiting_for,
        input=run.input, output=run.output, error=dict(run.error) if run.error else None,
        usage=RunUsage(
            turns=run.turns, tool_calls=run.tool_calls, input_tokens=run.input_tokens, output_tokens=run.output_tokens,
            cost=run.cost,
        ),
        skills=[LoadedView(**each) for each in run.skills], tainted_by=run.tainted_by, started_by=run.started_by,
        origin=_origin(run),
        is_cancelling=run.is_cancelling, created_at=clock.rfc3339(run.created_at),
        started_at=clock.optional_rfc3339(run.started_at), finished_at=clock.optional_rfc3339(run.finished_at),
        links={"self": own, "trace": f"{own}/trace", "events": f"{own}/events"},
    )  # fmt: skip


def _origin(run: Run) -> StepOriginView | None:
    if run.origin is None:
        return None
    return StepOriginView(**{name: getattr(run.origin, name) for name in StepOriginView.model_fields})


def trace_view(entry: Entry) -> TraceView:
    return TraceView(
        number=entry.number, kind=entry.kind, turn=entry.turn, call=entry.call, at=clock.rfc3339(entry.at), data=dict(entry.data)
    )


@route("POST", "/agents/{agent_id}/runs", scope="agents.run", body=StartRun, returns=RunView, status=202)
def start_run(call: Call, agent_id: str) -> Answer:
    """Queue a run of an agent, with its latest version unless `version` names another.

    The run acts within the scopes of this key and uses only the tools its definition lists; policies check every call.
    Repeating a request with the same Idempotency-Key returns the same run.
    """
    body: StartRun = call.body
    request = RunRequest(body.input, body.version, call.token, tainted_by=body.tainted_by)
    run = call.services.agents.start_run(call.scope, agent_id, request)
    view = run_view(run)
    return Answer(view, headers={"Location": view.links["self"]})


@route("GET", "/agents/{agent_id}/runs", scope="agents.read", query=RunsQuery, returns=RunView, listed=True)
def list_runs(call: Call, agent_id: str) -> Page[RunView]:
    """List the runs of an agent, newest first."""
    return runs.list_runs(call.scope, agent_id, call.query.page, call.query.status).map(run_view)


@route("GET", _RUN_PATH, scope="agents.read", returns=RunView)
def get_run(call: Call, agent_id: str, run_id: str) -> RunView:
    """Show a run: its status, what it is waiting for, its output or error, and its usage."""
    return run_view(runs.get_run(call.scope, agent_id, run_id))


@route("GET", f"{_RUN_PATH}/trace", scope="agents.read", returns=TraceView, listed=True)
def list_trace(call: Call, agent_id: str, run_id: str) -> Page[TraceView]:
    """List everything a run did, in order: model turns, tool calls with arguments and results, waits, and the end."""
    return runs.list_entries(call.scope, agent_id, run_id, call.query.page).map(trace_view)


@route("GET", f"{_RUN_PATH}/events", scope="agents.read", media="text/event-stream", query=NoQuery)
async def follow_run(call: Call, agent_id: str, run_id: str) -> Answer:
    """Stream the entries of a run's trace as server-sent events until the run finishes.

    Send `Last-Event-ID` to resume an interrupted stream.
    """
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(call.services.threads, partial(runs.get_run, call.scope, agent_id, run_id))
    last = call.headers.get("last-event-id", "0")
    if not last.isascii() or not last.isdigit() or len(last) > 9:
        raise ValidationFailed("Last-Event-ID must be the id of an event of this stream", pointer="/Last-Event-ID")
    return Answer(Events(_events(call, run_id, int(last))))


async def _events(call: Call, run_id: str, last: int) -> AsyncIterator[tuple[int, str, Any]]:
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(call.services.threads, partial(continued_access.is_still_allowed, call.scope, "agents.read")):
        is_over = await loop.run_in_executor(call.services.threads, partial(runs.is_finished, call.scope, run_id))
        entries = await loop.run_in_executor(call.services.threads, partial(runs.list_entries_after, call.scope, run_id, last))
        for entry in entries:
            last = entry.number
            yield entry.number, entry.kind, trace_view(entry).model_dump()
            if entry.kind == "ended":
                return
        if not entries:
            if is_over:
                return
            await asyncio.sleep(call.services.streams.poll_interval(POLL_SECONDS))


@route("POST", f"{_RUN_PATH}/cancel", scope="agents.run", returns=RunView)
def cancel_run(call: Call, agent_id: str, run_id: str) -> RunView:
    """Cancel a run. A waiting run ends at once and withdraws its open requests; a running one stops before its next step."""
    return run_view(runs.cancel_run(call.scope, agent_id, run_id))
