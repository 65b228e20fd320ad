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
from appliance.core.errors import Draining, ExecutionFinished, ValidationFailed
from appliance.core.pages import Page
from appliance.tenants.grants import continued_access

Status = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
EntryKind = Literal["asked", "answered", "unanswered", "called", "dispatched", "returned", "waiting", "resumed", "ended"]
_RUN_PATH = "/agents/{agent_id}/runs/{run_id}"


class StartRun(Body):
    """`input` is the agent's task: a text, or an object, which the model receives as JSON.

    `tainted_by` names outside sources that parts of the input come from, such as `mail`; the run then starts tainted.
    """

    input: Annotated[Annotated[str, Field(min_length=1)] | dict[str, Any], Field(description=(
        "The agent's task: a text, or an object that the model receives as JSON; at most 256 KiB."
    ))]
    version: Annotated[
        int | None, Field(ge=1, le=10**9, description="The version of the agent to run; default: its latest.")
    ] = None
    tainted_by: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20, description=(
        "The outside sources of parts of the input, such as `mail`; at most 20 names of 1 to 200 characters."
    ))] = Field(default=[])


class RunsQuery(ListQuery):
    status: Annotated[Status | None, Field(description="Only runs with this status.")] = None


class RunUsage(View):
    """Usage of a run so far; `cost` is in the currency of the model's prices."""

    turns: Annotated[int, Field(description="How many times the model was called to continue the run.")]
    tool_calls: Annotated[int, Field(description="How many tool calls the model has made.")]
    input_tokens: Annotated[int, Field(description="The tokens sent to the model.")]
    output_tokens: Annotated[int, Field(description="The tokens the model has answered with.")]
    cost: Annotated[
        float, Field(description="The cost of these tokens, in the currency of the model's prices; 0 if it has no prices.")
    ]


class LoadedView(View):
    """A skill that a run has loaded."""

    name: Annotated[str, Field(description="Identifies the skill among those of the tenant.")]
    digest: Annotated[str, Field(description="The digest of the skill's files when it was loaded; `sha256:…`.")]
    is_trusted: Annotated[
        bool, Field(description="Whether a person had approved this digest, so that reading it did not taint the run.")
    ]


class StepOriginView(View):
    """The process step that started a run and waits for its result."""

    execution_id: Annotated[str, Field(description="The execution that the step belongs to; `exe_…`.")]
    process_id: Annotated[str, Field(description="The slug of the execution's process.")]
    step: Annotated[str, Field(description="The id of the step in the definition.")]
    path: Annotated[str, Field(description=(
        "The place of the step in the definition: the ids of the blocks around it and its own, joined by `/`."
    ))]
    iteration: Annotated[str, Field(description=(
        "The index of the `for_each` item, from 0; nested ones joined by dots, outermost first. Empty elsewhere."
    ))]
    attempt: Annotated[int, Field(description="The attempt of the step that started the run, from 1.")]


class RunView(View):
    """A run of an agent.  `tainted_by` lists the outside sources it has read, `waiting_for` says what it is waiting for, and
    `origin` is the process step that started it."""

    run_id: Annotated[str, Field(description="Identifies the run; `run_…`.")]
    agent_id: Annotated[str, Field(description="The slug of the agent.")]
    version: Annotated[int, Field(description="The version of the agent that the run follows to its end.")]
    status: Annotated[Status, Field(description="The stage of the run; the last three are final.")]
    waiting_for: Annotated[dict[str, Any] | None, Field(description=(
        "What the run waits for: `reason` (`approval`, `input`, `retry` or `call`) and more by reason. Absent otherwise."
    ))] = None
    input: Annotated[Any, Field(description="The task that the run was started with: a text or an object.")]
    output: Annotated[Any, Field(description=(
        "The agent's answer: a text, or an object by the `output` schema of its definition. Absent until it succeeds."
    ))] = None
    error: Annotated[
        dict[str, Any] | None, Field(description="Why the run failed: `code`, `message` and more by code. Absent unless it failed.")
    ] = None
    usage: Annotated[RunUsage, Field(description="What the run has used so far.")]
    skills: Annotated[list[LoadedView], Field(description="The skills that the run has loaded, in that order.")]
    tainted_by: Annotated[list[str], Field(description=(
        "The outside sources whose content the run has read. Once there is one, writes need an approval unless a rule allows it."
    ))]
    started_by: Annotated[
        str, Field(description="Who started the run, and whose scopes bound it: `key:<id>`, `user:<id>` or `execution:<id>`.")
    ]
    origin: Annotated[
        StepOriginView | None, Field(description="The process step that waits for the run. Absent if no step started it.")
    ] = None
    is_cancelling: Annotated[bool, Field(description="Whether the run has been cancelled and still ends its current turn or call.")]
    created_at: Annotated[str, Field(description="When the run was requested; RFC 3339, UTC.")]
    started_at: Annotated[str | None, Field(description="When the run first began to work; RFC 3339, UTC. Absent before.")] = None
    finished_at: Annotated[
        str | None, Field(description="When the run reached a final status; RFC 3339, UTC. Absent before.")
    ] = None
    links: Annotated[dict[str, str], Field(description="Paths on this host for the run: `self`, `trace` and `events`.")]


class TraceView(View):
    """One event in a run's trace; `call` numbers the tool calls of a turn, starting at 1."""

    number: Annotated[int, Field(description="The number of the event in the run, from 1.")]
    kind: Annotated[EntryKind, Field(description=(
        "`asked`, `answered`, `unanswered`: a model turn, its answer or failure. `called`, `dispatched`, `returned`: a tool call, "
        "its effect, its result. `waiting`, `resumed`: a call waits for a person, who has decided."
    ))]
    turn: Annotated[
        int, Field(description="The model turn that the event belongs to, from 1; 0 if the run ended before its first.")
    ]
    call: Annotated[int, Field(description="The tool call of the turn, from 1; 0 for events of the turn itself.")]
    at: Annotated[str, Field(description="When it happened; RFC 3339, UTC.")]
    data: Annotated[dict[str, Any], Field(description=(
        "What belongs to the kind of event: for a call its tool and arguments, for an end its status."
    ))]


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


@route("POST", "/agents/{agent_id}/runs", scope="agents.run", body=StartRun, returns=RunView, status=202, errors=(Draining,))
def start_run(call: Call, agent_id: str) -> Answer:
    """Queue a run of an agent.

    The run follows the latest version unless `version` names another. It acts within the scopes of this key and uses only the
    tools its definition lists; policies check every call. Repeating a request with the same Idempotency-Key returns the same
    run.
    """
    body: StartRun = call.body
    request = RunRequest(body.input, body.version, call.token, tainted_by=body.tainted_by)
    run = call.services.agents.runs.start_run(call.scope, agent_id, request)
    view = run_view(run)
    return Answer(view, headers={"Location": view.links["self"]})


@route("GET", "/agents/{agent_id}/runs", scope="agents.read", query=RunsQuery, returns=RunView, listed=True)
def list_runs(call: Call, agent_id: str) -> Page[RunView]:
    """List the runs of an agent.

    The newest come first; `sort` takes `created_at` and `id`. Finished runs are deleted after the retention time of the
    configuration.
    """
    return runs.list_runs(call.scope, agent_id, call.query.page, call.query.status).map(run_view)


@route("GET", _RUN_PATH, scope="agents.read", returns=RunView)
def get_run(call: Call, agent_id: str, run_id: str) -> RunView:
    """Show a run of an agent.

    The answer has its status, what it is waiting for, its output or error, and its usage.
    """
    return run_view(runs.get_run(call.scope, agent_id, run_id))


@route("GET", f"{_RUN_PATH}/trace", scope="agents.read", returns=TraceView, listed=True)
def list_trace(call: Call, agent_id: str, run_id: str) -> Page[TraceView]:
    """List everything a run did, in order.

    Model turns, tool calls with arguments and results, waits, and the end; `sort=-number` begins with the newest.
    """
    return runs.list_entries(call.scope, agent_id, run_id, call.query.page).map(trace_view)


@route("GET", f"{_RUN_PATH}/events", scope="agents.read", media="text/event-stream", query=NoQuery, errors=(ValidationFailed,))
async def follow_run(call: Call, agent_id: str, run_id: str) -> Answer:
    """Stream the trace of a run.

    Server-sent events, until the run finishes. Send `Last-Event-ID` to resume an interrupted stream.
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
            await asyncio.sleep(call.services.limits.streams.poll_interval(POLL_SECONDS))


@route("POST", f"{_RUN_PATH}/cancel", scope="agents.run", returns=RunView, errors=(ExecutionFinished,))
def cancel_run(call: Call, agent_id: str, run_id: str) -> RunView:
    """Cancel a run of an agent.

    A waiting run ends at once and withdraws its open requests; a running one stops before its next step.
    """
    return run_view(runs.cancel_run(call.scope, agent_id, run_id))
