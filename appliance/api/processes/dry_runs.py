"""/api/v1/processes/{id}/test and samples: a draft, a version or one step without any effect."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import NULL, Answer, Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.pages import Page
from appliance.processes import SampleRow
from appliance.processes.host import shorten
from appliance.processes.rehearsal import DryCall, DryRun, DryRunRequest, Sample, StepDryRun, samples

# Values of so many bytes in all are told whole, of the others the beginning: a for_each may have thousands.
WHOLE_BYTES = 4 << 20
MOST_STEPS = 1_000
Name = Annotated[str, Field(min_length=1, max_length=500)]


class ContextBody(Body):
    """What one step sees: outputs by step id, and the items of the for_each steps around it, by their names."""

    steps: Annotated[dict[str, Any], Field(default_factory=dict)]
    items: Annotated[dict[str, Any], Field(default_factory=dict)]


class TestBody(Body):
    input: dict[str, Any] | None = None
    step: Name | None = None
    version: Annotated[int, Field(ge=1, le=10**9)] | Literal["draft"] = "draft"
    mocks: Annotated[dict[str, Any], Field(default_factory=dict)]
    context: ContextBody = ContextBody(steps={}, items={})
    sample: Name | None = None


class DryCallView(View):
    """One call: what it would do (`effect`), who answered it, and the answer or, not `ok`, the fault."""

    step: str
    path: str
    iteration: str | None = None
    method: str
    args: Any
    effect: Literal["read", "idempotent", "write", "wait"]
    answered_by: Literal["live", "mock", "default"]
    ok: bool
    answer: Any = None


class TestLineView(View):
    at: str
    level: str
    message: str
    fields: Any = None


class StepTestView(View):
    """One step run; `result_source` is `mocked` where something else stands for what it would have come to."""

    step: str
    path: str
    iteration: str | None = None
    kind: str
    status: str
    result_source: Literal["executed", "mocked"]
    input: Any = None
    output: Any = None
    error: dict[str, Any] | None = None
    duration_ms: int | None = None
    calls: list[DryCallView]
    logs: list[TestLineView]


class TestView(View):
    """What a test came to.  `effects` are the calls that would have done something; `steps` are at most 1,000 of the
    `step_count` there were, and values beyond 4 MiB in all are shown by their beginning."""

    process_id: str
    version: int | Literal["draft"]
    status: Literal["succeeded", "failed", "timed_out"]
    output: Any = None
    error: dict[str, Any] | None = None
    steps: list[StepTestView]
    step_count: int
    effects: list[DryCallView]
    unused_mocks: list[str]
    duration_ms: int


class _Teller:
    """Shows values whole until there have been WHOLE_BYTES of them."""

    def __init__(self) -> None:
        self._left = WHOLE_BYTES

    def show(self, value: Any) -> Any:
        shown, size = shorten(value, max(0, self._left))
        if size is None and isinstance(shown, str | list | dict):
            self._left -= len(str(shown))
        return NULL if shown is None else shown

    def call(self, call: DryCall) -> DryCallView:
        return DryCallView(
            step=call.step, path=call.path, iteration=call.iteration or None, method=call.method, args=self.show(call.args),
            effect=call.effect, answered_by=call.answered_by, ok=call.ok, answer=self.show(call.answer),
        )  # fmt: skip

    def step(self, told: StepDryRun) -> StepTestView:
        run = told.run
        return StepTestView(
            step=run.step, path=run.path, iteration=run.iteration or None, kind=run.kind, status=run.status,
            result_source="mocked" if run.result_source == "mocked" else "executed", input=self.show(run.input),
            output=self.show(run.output) if run.status in ("succeeded", "skipped") else None,
            error=dict(run.error) if run.error else None,
            duration_ms=run.finished_at - run.started_at if run.finished_at and run.started_at else None,
            calls=[self.call(call) for call in told.calls],
            logs=[
                TestLineView(at=clock.rfc3339(line.at_ms), level=line.level, message=line.message, fields=line.fields)
                for line in told.logs
            ],
        )  # fmt: skip


def test_view(told: DryRun) -> TestView:
    teller = _Teller()
    return TestView(
        process_id=told.process_id, version=told.version, status=told.status,
        output=teller.show(told.output) if told.status == "succeeded" else None, error=dict(told.error) if told.error else None,
        steps=[teller.step(step) for step in told.steps[:MOST_STEPS]], step_count=len(told.steps),
        effects=[teller.call(call) for call in told.effects[:MOST_STEPS]], unused_mocks=told.unused_mocks,
        duration_ms=told.duration_ms,
    )  # fmt: skip


@route("POST", "/processes/{process_id}/test", scope="processflow.write", body=TestBody, returns=TestView, atomic=False)
def test_process(call: Call, process_id: str) -> TestView:
    """Test the draft, a version or one step without any effect.

    What computes is performed, and reads of DataPool and of integrations are made. Whatever would have an effect is listed
    under `effects` and answered by `mocks`, else by the step's own `mock`, else by what `sample` has pinned, else by a
    stand-in: null, an approval, or the record a write would have made. `mocks` are
    `{<step>: {output | outputs | error | calls}, <method>/<path>: {output | outputs | error}}`, where `outputs` are for one
    time after another and a call is named like `integrations.execute/erp/create_order`. The key needs processflow.execute
    and processflow.read as well, for it reads foreign systems and shows what it read.
    """
    call.scope.require("processflow.execute")
    call.scope.require("processflow.read")
    body: TestBody = call.body
    request = DryRunRequest(
        body.input, None if body.version == "draft" else body.version, body.step, body.mocks, body.context.steps,
        body.context.items, sample=body.sample,
    )  # fmt: skip
    return test_view(call.services.processes.test_process(call.scope, process_id, request))


# -- samples


class SampleBody(Body):
    input: dict[str, Any] | None = None
    steps: Annotated[dict[str, Any], Field(default_factory=dict)]
    from_execution: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class SampleSummary(View):
    name: str
    from_execution: str | None = None
    created_at: str
    updated_at: str


class SampleView(SampleSummary):
    input: dict[str, Any]
    steps: dict[str, Any]


def sample_summary(row: SampleRow) -> SampleSummary:
    return SampleSummary(
        name=row.name, from_execution=row.from_execution, created_at=clock.rfc3339(row.created_at),
        updated_at=clock.rfc3339(row.updated_at),
    )  # fmt: skip


def sample_view(row: SampleRow) -> SampleView:
    return SampleView(**sample_summary(row).model_dump(), input=row.input, steps=_told(row.steps))


def _told(outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: NULL if value is None else value for name, value in outputs.items()}


_SAMPLES = "/processes/{process_id}/samples"


@route("GET", _SAMPLES, scope="processflow.read", returns=SampleSummary, listed=True)
def list_samples(call: Call, process_id: str) -> Page[SampleSummary]:
    """List the samples of a process by name."""
    return samples.list_samples(call.scope, process_id, call.query.page).map(sample_summary)


@route("GET", f"{_SAMPLES}/{{name}}", scope="processflow.read", returns=SampleView)
def get_sample(call: Call, process_id: str, name: str) -> SampleView:
    """Show a sample: an input, and outputs by step id."""
    return sample_view(samples.get_sample(call.scope, process_id, name))


@route("PUT", f"{_SAMPLES}/{{name}}", scope="processflow.write", body=SampleBody, returns=SampleView, also={201: SampleView})
def put_sample(call: Call, process_id: str, name: str) -> Answer:
    """Pin a sample to a process, or replace it.

    `from_execution` takes the input and the outputs of the steps of an execution of this process, so the key needs
    processflow.read; what is given beside it goes over that. It stays when the execution is deleted.
    """
    body: SampleBody = call.body
    if body.from_execution is not None:
        call.scope.require("processflow.read")
    row, new = samples.pin_sample(call.scope, process_id, name, Sample(body.input, body.steps, body.from_execution))
    headers = {"Location": f"/api/v1/processes/{process_id}/samples/{name}"} if new else {}
    return Answer(sample_view(row), status=201 if new else 200, headers=headers)


@route("DELETE", f"{_SAMPLES}/{{name}}", scope="processflow.write", returns=DeletedView)
def delete_sample(call: Call, process_id: str, name: str) -> DeletedView:
    """Delete a sample."""
    samples.delete_sample(call.scope, process_id, name)
    return DeletedView(deleted=name)
