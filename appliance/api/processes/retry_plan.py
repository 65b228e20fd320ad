"""/api/v1/processes/{id}/executions/{eid}/retry-plan: what a retry would do."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Call, Query, View, route
from appliance.processes.executions import RepeatedEffect, RetryPlan, StepFate

MOST = 1_000


class RetryPlanQuery(Query):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    from_: Annotated[str, Field(alias="from", min_length=1, max_length=500)] = "failed"
    version: Literal["original", "published"] = "original"


class StepFateView(View):
    """What a retry does with a step run; `first` is a step the execution never reached."""

    step: str
    path: str
    iteration: str | None = None
    kind: str
    fate: Literal["reused", "continued", "passed_over", "again", "first", "dropped"]


class RepeatedEffectView(View):
    """An effect that a retry would repeat; if not `certain`, it may not have happened the first time."""

    step: str
    path: str
    iteration: str | None = None
    attempt: int
    method: str
    target: str
    certain: bool
    sentence: str


class RetryPlanView(View):
    """Lists at most 1,000 step runs and effects; the counts and sentences cover all of them."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    execution_id: str
    from_: Annotated[str, Field(alias="from")]
    version: int
    counts: dict[str, int]
    sentences: list[str]
    steps: list[StepFateView]
    effects: list[RepeatedEffectView]


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
    returns=RetryPlanView,
)  # fmt: skip
def get_retry_plan(call: Call, process_id: str, execution_id: str) -> RetryPlanView:
    """Show what a retry would keep, run again and repeat outside.

    `from` and `version` are those of `retry`, and the call is refused for the same reasons. `effects` lists what the steps that
    would run again have already done: writes to foreign systems and the DataPool, child executions and requests to people.
    """
    query: RetryPlanQuery = call.query
    return retry_plan_view(
        call.services.processes.plan_retry(
            call.scope, execution_id, start_from=query.from_, published=query.version == "published", process_id=process_id
        )
    )
