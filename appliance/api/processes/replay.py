"""/api/v1/processes/{id}/executions/{eid}/replay: replay a finished execution against its journal."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import NULL, Body, Call, View, route
from appliance.processes.host import shorten
from appliance.processes.rehearsal import Change, Replay, ReplayRequest, StepReplay

# Only this many differing step runs are listed with outputs and changes; the others only with their result.
DETAILED = 100
CHANGE_BYTES = 4_000


class ReplayBody(Body):
    version: Annotated[int, Field(ge=1, le=10**9)] | Literal["draft"] | None = None
    step: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class DifferenceView(View):
    """One change in the style of JSON Patch; `from` is the recorded value, `to` the replayed one."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    op: Literal["add", "remove", "replace"]
    path: str
    from_: Annotated[Any, Field(alias="from")] = None
    to: Any = None


class DivergenceView(View):
    """Where a step diverged: at host call `call`, or in its choice, request or result; null stands for nothing."""

    step: str
    path: str
    iteration: str | None = None
    call: int | None = None
    recorded: Any
    replayed: Any


class StepReplayView(View):
    """One step run and its differences; `error` is the replay's error, `recorded_error` that of the recorded run."""

    step: str
    path: str
    iteration: str | None = None
    kind: str
    result: Literal["identical", "output_differs", "diverged", "not_recorded", "skipped"]
    recorded_output: Any = None
    replayed_output: Any = None
    diff: list[DifferenceView]
    divergence: DivergenceView | None = None
    recorded_error: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class OutputView(View):
    recorded: Any
    replayed: Any
    diff: list[DifferenceView]


class ReplayView(View):
    execution_id: str
    version: int
    replayed_version: int | Literal["draft"]
    identical: bool
    first_divergence: DivergenceView | None = None
    steps: list[StepReplayView]
    output: OutputView | None = None


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
    returns=ReplayView, atomic=False,
)  # fmt: skip
def replay_execution(call: Call, process_id: str, execution_id: str) -> ReplayView:
    """Replay a finished execution against its journal and report where it diverges.

    The replay uses the execution's own version, another `version` or the `draft`, for the whole execution or for one `step` (an
    id or a path) with its recorded input. Calls are answered from the journal and effects only compared, so nothing is changed.
    The answer shows recorded values, so the key also needs processflow.read.
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
