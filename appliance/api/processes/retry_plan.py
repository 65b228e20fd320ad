"""/api/v1/processes/{id}/executions/{eid}/retry-plan: what a retry would do."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Call, Query, View, route
from appliance.core.errors import Conflict, NotPublished, ValidationFailed
from appliance.processes.executions import RepeatedEffect, RetryPlan, StepFate

from .execution_views import Iteration, StepId, StepKind, StepPath

MOST = 1_000


class RetryPlanQuery(Query):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    from_: Annotated[str, Field(alias="from", min_length=1, max_length=500, description=(
        "`failed` keeps every step that succeeded, `start` keeps none, and a step's id or path keeps the steps before it."
    ))] = "failed"
    version: Annotated[Literal["original", "published"], Field(description=(
        "`original` plans with the version that was executed, `published` with the version that is published now."
    ))] = "original"


class StepFateView(View):
    """What a retry does with a step run; `first` is a step the execution never reached."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    kind: StepKind
    fate: Annotated[Literal["reused", "continued", "passed_over", "again", "first", "dropped"], Field(description=(
        "`reused` and `continued` keep what is recorded, `passed_over` stays skipped, `dropped` is no longer in the version."
    ))]


class RepeatedEffectView(View):
    """An effect that a retry would repeat; if not `certain`, it may not have happened the first time."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    attempt: Annotated[int, Field(description="The attempt that had the effect, from 1.")]
    method: Annotated[
        str, Field(description="The host function that had the effect, such as `integrations.execute` or `datapool.create`.")
    ]
    target: Annotated[str, Field(description=(
        "What it reached: an integration and its action, a collection, a process or a profile. Empty if it has none."
    ))]
    certain: Annotated[bool, Field(description="Whether the effect is known to have happened the first time.")]
    sentence: Annotated[str, Field(description="What would happen again, as a sentence.")]


class RetryPlanView(View):
    """Lists at most 1,000 step runs and effects; the counts and sentences cover all of them."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    execution_id: Annotated[str, Field(description="The execution that would be retried; `exe_…`.")]
    from_: Annotated[
        str, Field(alias="from", description="Where the retry would start: `failed`, `start`, or the id or path of a step.")
    ]
    version: Annotated[int, Field(description="The version that the retry would run.")]
    counts: Annotated[dict[str, int], Field(description="The number of step runs by `fate`; a fate without any is absent.")]
    sentences: Annotated[
        list[str], Field(description="The plan in words: a summary of the step runs, then what would be repeated outside.")
    ]
    steps: Annotated[list[StepFateView], Field(description="What happens to each step run, at most 1,000.")]
    effects: Annotated[list[RepeatedEffectView], Field(description="What would be repeated outside, at most 1,000.")]


def _fate(step: StepFate) -> StepFateView:
    return StepFateView(step=step.step, path=step.path, iteration=step.iteration or None, kind=step.kind, fate=step.fate)


def _effect(effect: RepeatedEffect) -> RepeatedEffectView:
    members = {name: value for name, value in effect.__dict__.items() if name != "iteration"}
    return RepeatedEffectView(**members, iteration=effect.iteration or None)


def retry_plan_view(plan: RetryPlan) -> RetryPlanView:
    return RetryPlanView(
        execution_id=plan.execution_id, from_=plan.start_from, version=plan.version, counts=plan.counts, sentences=plan.sentences,
        steps=[_fate(step) for step in plan.steps[:MOST]], effects=[_effect(effect) for effect in plan.effects[:MOST]],
    )  # fmt: skip


@route(
    "GET", "/processes/{process_id}/executions/{execution_id}/retry-plan", scope="processflow.read", query=RetryPlanQuery,
    returns=RetryPlanView, errors=(Conflict, NotPublished, ValidationFailed),
)  # fmt: skip
def get_retry_plan(call: Call, process_id: str, execution_id: str) -> RetryPlanView:
    """Show what a retry would keep and repeat.

    `from` and `version` are those of `retry`, and the call is refused for the same reasons. `effects` lists what the steps that
    would run again have already done: writes to foreign systems and the DataPool, child executions and requests to people.
    """
    query: RetryPlanQuery = call.query
    return retry_plan_view(
        call.services.processes.plan_retry(
            call.scope, execution_id, start_from=query.from_, published=query.version == "published", process_id=process_id
        )
    )
