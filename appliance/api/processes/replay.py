"""/api/v1/processes/{id}/executions/{eid}/replay: replay a finished execution against its journal."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import NULL, Body, Call, View, route
from appliance.core.errors import ConcurrencyLimited, Conflict
from appliance.processes.host import shorten
from appliance.processes.rehearsal import Change, Replay, ReplayRequest, StepReplay

from .execution_views import Iteration, StepId, StepKind, StepPath

# Only this many differing step runs are listed with outputs and changes; the others only with their result.
DETAILED = 100
CHANGE_BYTES = 4_000


class ReplayBody(Body):
    """What to replay, and with which version."""

    version: Annotated[Annotated[int, Field(ge=1, le=10**9)] | Literal["draft"] | None, Field(description=(
        "Another version to replay with, or `draft`; default: the version that was executed."
    ))] = None
    step: Annotated[str | None, Field(min_length=1, max_length=500, description=(
        "The id or path of the only step to replay, with its recorded input; default: the whole execution."
    ))] = None


class DifferenceView(View):
    """One change in the style of JSON Patch; `from` is the recorded value, `to` the replayed one."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    op: Annotated[Literal["add", "remove", "replace"], Field(description="What happened to the value at `path`.")]
    path: Annotated[str, Field(description="The JSON pointer of the value; empty for the whole.")]
    from_: Annotated[Any, Field(alias="from", description=(
        "The value before; absent with `add`. The start of its JSON if it exceeds 4,000 bytes."
    ))] = None
    to: Annotated[
        Any, Field(description="The value after; absent with `remove`. The start of its JSON if it exceeds 4,000 bytes.")
    ] = None


class DivergenceView(View):
    """Where a step diverged: at host call `call`, or in its choice, request or result; null stands for nothing."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    call: Annotated[int | None, Field(description=(
        "The number of the host call that diverged, from 1. Absent if it was the choice, request or result of the step."
    ))] = None
    recorded: Annotated[
        Any, Field(description="What the execution did there; null for nothing. The start of its JSON if it exceeds 64 KiB.")
    ]
    replayed: Annotated[
        Any, Field(description="What the replay did there; null for nothing. The start of its JSON if it exceeds 64 KiB.")
    ]


class StepReplayView(View):
    """One step run and its differences; `error` is the replay's error, `recorded_error` that of the recorded run."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    kind: StepKind
    result: Annotated[Literal["identical", "output_differs", "diverged", "not_recorded", "skipped"], Field(description=(
        "How the step compares with its record; `not_recorded` is new to the replay, `skipped` one that the replay did not reach."
    ))]
    recorded_output: Annotated[
        Any, Field(description="The output of the execution, where it differs; the start of its JSON if it exceeds 64 KiB.")
    ] = None
    replayed_output: Annotated[
        Any, Field(description="The output of the replay, where it differs; the start of its JSON if it exceeds 64 KiB.")
    ] = None
    diff: Annotated[list[DifferenceView], Field(description=(
        "The changes from the recorded to the replayed output, at most 200; empty beyond the first 100 steps that differ."
    ))]
    divergence: Annotated[DivergenceView | None, Field(description=(
        "Where the step diverged. Absent if it did not, and beyond the first 100 steps that differ."
    ))] = None
    recorded_error: Annotated[dict[str, Any] | None, Field(description=(
        "The error of the execution's step run, where it differs: `code`, `failure_class`, `message`."
    ))] = None
    error: Annotated[
        dict[str, Any] | None, Field(description="The error of the replay, where it differs: `code`, `failure_class`, `message`.")
    ] = None


class OutputView(View):
    """The outputs of the whole process, compared."""

    recorded: Annotated[
        Any, Field(description="What the execution returned; null without a result. The start of its JSON if it exceeds 64 KiB.")
    ]
    replayed: Annotated[
        Any, Field(description="What the replay returned; null without a result. The start of its JSON if it exceeds 64 KiB.")
    ]
    diff: Annotated[list[DifferenceView], Field(description="The changes from the recorded to the replayed output, at most 200.")]


class ReplayView(View):
    """How a replay compares with the recorded execution."""

    execution_id: Annotated[str, Field(description="The execution that was replayed; `exe_…`.")]
    version: Annotated[int, Field(description="The version that was executed.")]
    replayed_version: Annotated[int | Literal["draft"], Field(description="The version that was replayed, or `draft`.")]
    identical: Annotated[bool, Field(description="Whether every step run and the end of the execution had the same result.")]
    first_divergence: Annotated[DivergenceView | None, Field(description=(
        "The divergence of the first step that differs. Absent if it did not diverge or nothing differs."
    ))] = None
    steps: Annotated[
        list[StepReplayView], Field(description="The step runs in the order of the replay, each compared with its record.")
    ]
    output: Annotated[
        OutputView | None, Field(description="The outputs of the process, compared. Absent if only one step was replayed.")
    ] = None


def _shortened(value: Any) -> Any:
    """The value, shortened if it is long; an explicit null for None."""
    return NULL if value is None else shorten(value)[0]


def difference_view(change: Change) -> DifferenceView:
    sides = {"from_": change.from_, "to": change.to}
    shown_sides = {"add": ("to",), "remove": ("from_",), "replace": ("from_", "to")}[change.op]
    values = {name: NULL if sides[name] is None else shorten(sides[name], CHANGE_BYTES)[0] for name in shown_sides}
    return DifferenceView(op=change.op, path=change.path, **values)


def divergence_view(step: StepReplay | None) -> DivergenceView | None:
    if step is None or step.divergence is None:
        return None
    divergence = step.divergence
    return DivergenceView(
        step=step.step, path=step.path, iteration=step.iteration or None, call=divergence.call,
        recorded=_shortened(divergence.recorded), replayed=_shortened(divergence.replayed),
    )  # fmt: skip


def step_replay_view(step: StepReplay, *, detailed: bool) -> StepReplayView:
    members = {"step": step.step, "path": step.path, "iteration": step.iteration or None, "kind": step.kind, "result": step.result}
    if not detailed or step.result == "identical":
        return StepReplayView(**members, diff=[])
    return StepReplayView(
        **members, recorded_output=_shortened(step.recorded_output), replayed_output=_shortened(step.replayed_output),
        diff=[difference_view(change) for change in step.changes], divergence=divergence_view(step),
        recorded_error=dict(step.recorded_error) if step.recorded_error else None, error=dict(step.error) if step.error else None,
    )  # fmt: skip


def replay_view(replay: Replay) -> ReplayView:
    differing = [step for step in replay.steps if step.result != "identical"]
    detailed = {id(step) for step in differing[:DETAILED]}
    output = OutputView(
        recorded=_shortened(replay.recorded_output), replayed=_shortened(replay.replayed_output),
        diff=[difference_view(change) for change in replay.changes],
    )  # fmt: skip
    return ReplayView(
        execution_id=replay.execution_id, version=replay.version, replayed_version=replay.replayed_version,
        identical=replay.is_identical, first_divergence=divergence_view(replay.first),
        steps=[step_replay_view(step, detailed=id(step) in detailed) for step in replay.steps],
        output=output if replay.is_whole else None,
    )  # fmt: skip


@route(
    "POST", "/processes/{process_id}/executions/{execution_id}/replay", scope="processflow.execute", body=ReplayBody,
    returns=ReplayView, atomic=False, errors=(ConcurrencyLimited, Conflict),
)  # fmt: skip
def replay_execution(call: Call, process_id: str, execution_id: str) -> ReplayView:
    """Replay a finished execution against its journal.

    The answer says where it diverges. The replay uses the execution's own version, another `version` or the `draft`, for the
    whole execution or for one `step` (an id or a path) with its recorded input. Calls are answered from the journal and effects
    only compared, so nothing is changed. The answer shows recorded values, so the key also needs processflow.read.
    """
    call.scope.require("processflow.read")
    body: ReplayBody = call.body
    is_draft = body.version == "draft"
    version = body.version if isinstance(body.version, int) else None
    return replay_view(
        call.services.processes.replay_execution(
            call.scope, execution_id, ReplayRequest(version, body.step, is_draft), process_id=process_id
        )
    )
