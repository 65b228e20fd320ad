"""/api/v1/processes/{id}/test and samples: test a draft, a version or one step without side effects."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import NULL, Answer, Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, Conflict, NotPublished
from appliance.core.pages import Page
from appliance.processes import SampleRow
from appliance.processes.host import shorten
from appliance.processes.rehearsal import DryCall, DryRun, DryRunRequest, Sample, StepDryRun, samples

from .execution_views import Iteration, StepError, StepId, StepKind, StepPath

# Values are shown in full up to this total, and shortened beyond it: a for_each may have thousands of them.
WHOLE_BYTES = 4 << 20
MOST_STEPS = 1_000
Name = Annotated[str, Field(min_length=1, max_length=500)]


class ContextBody(Body):
    """The context of a single step: outputs by step id, and the items of enclosing for_each steps by item name."""

    steps: Annotated[dict[str, Any], Field(default_factory=dict, description=(
        "Outputs by step id, as the tested step reads them from `steps`; default: those of the sample, else none."
    ))]
    items: Annotated[dict[str, Any], Field(default_factory=dict, description=(
        "The current item of each enclosing `for_each`, by the name that the definition gives it."
    ))]


class TestBody(Body):
    """What to test, and with which values."""

    input: Annotated[
        dict[str, Any] | None, Field(description="The input object of the process; default: the input of the sample, else `{}`.")
    ] = None
    step: Annotated[Name | None, Field(description=(
        "The id or path of the only step to test, with the steps inside it; default: the whole process."
    ))] = None
    version: Annotated[
        Annotated[int, Field(ge=1, le=10**9)] | Literal["draft"], Field(description="The version to test, or `draft`.")
    ] = "draft"
    mocks: Annotated[dict[str, Any], Field(default_factory=dict, description=(
        "Answers that replace steps and calls, by step (id or path) or call such as `integrations.execute/erp/create_order`."
    ))]
    context: Annotated[
        ContextBody, Field(description="What a single step sees; used with `step` only.")
    ] = ContextBody(steps={}, items={})
    sample: Annotated[Name | None, Field(description=(
        "The name of a sample of the process, whose input and step outputs are used where the request has none."
    ))] = None


class DryCallView(View):
    """One call: its `effect`, where its answer came from, and the answer or, if not `ok`, the error."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    method: Annotated[
        str, Field(description="The host function that was called, such as `datapool.create` or `integrations.execute`.")
    ]
    args: Annotated[Any, Field(description="What the code passed to the call, in order.")]
    effect: Annotated[Literal["read", "idempotent", "write", "wait"], Field(description=(
        "What the call would do outside: `read` nothing, `idempotent` the same when repeated, `write` a change, `wait` time."
    ))]
    answered_by: Annotated[Literal["live", "mock", "default"], Field(description=(
        "`live`: a real read; `mock`: a mock, the step's own or the request's; `default`: a stand-in."
    ))]
    ok: Annotated[bool, Field(description="Whether the call succeeded; if not, `answer` is the error that the code received.")]
    answer: Annotated[Any, Field(description="What the code received: the result or the error.")] = None


class TestLineView(View):
    """A line that a tested step logged."""

    at: Annotated[str, Field(description="When the line was written; RFC 3339, UTC.")]
    level: Annotated[str, Field(description="The severity: `debug`, `info`, `warn` or `error`.")]
    message: Annotated[str, Field(description="What was logged, as text for people; structured data is in `fields`.")]
    fields: Annotated[Any, Field(description="Structured data that was logged with the message; absent if there was none.")] = None


class StepTestView(View):
    """One step run; `result_source` is `mocked` where a mock or stand-in replaces its result."""

    step: StepId
    path: StepPath
    iteration: Iteration = None
    kind: StepKind
    status: Annotated[str, Field(description="How the step ended: `succeeded`, `failed`, `skipped` or `cancelled`.")]
    result_source: Annotated[
        Literal["executed", "mocked"], Field(description="Whether the step ran, or a mock or stand-in replaced its result.")
    ]
    input: Annotated[Any, Field(description="The input that the step received; null if it has none.")] = None
    output: Annotated[Any, Field(description="What the step returned; null without a result, absent if it did not succeed.")] = None
    error: StepError = None
    duration_ms: Annotated[
        int | None, Field(description="Milliseconds from the start of the step to its end. Absent if it did not run.")
    ] = None
    calls: Annotated[list[DryCallView], Field(description="What the step asked of the appliance and of foreign systems, in order.")]
    logs: Annotated[list[TestLineView], Field(description="The lines that the step logged, in order.")]


class TestView(View):
    """The result of a test.  `effects` lists the calls that would have had an effect; `steps` has at most 1,000 of the
    `step_count` step runs, and values beyond 4 MiB in total are shortened."""

    process_id: Annotated[str, Field(description="The slug of the tested process.")]
    version: Annotated[int | Literal["draft"], Field(description="The version that was tested, or `draft`.")]
    status: Annotated[Literal["succeeded", "failed", "timed_out"], Field(description="How an execution would have ended.")]
    output: Annotated[
        Any, Field(description="What the process would have returned; null without a result, absent if it did not succeed.")
    ] = None
    error: Annotated[dict[str, Any] | None, Field(description=(
        "Why it failed: `code`, `failure_class`, `message`, `next` and, where known, `step` and `position`. Absent otherwise."
    ))] = None
    steps: Annotated[list[StepTestView], Field(description="The step runs in the order in which they ran, at most 1,000.")]
    step_count: Annotated[int, Field(description="The number of all step runs, including those that are not listed.")]
    effects: Annotated[
        list[DryCallView], Field(description="The calls that would have changed something or waited, in order, at most 1,000.")
    ]
    unused_mocks: Annotated[list[str], Field(description="Names in `mocks` that no step or call used, usually misspelt.")]
    duration_ms: Annotated[int, Field(description="How long the test took, in milliseconds.")]


class _ViewBuilder:
    """Renders the views of a test, with values in full up to WHOLE_BYTES in total and shortened from then on."""

    def __init__(self) -> None:
        self._left = WHOLE_BYTES

    def show(self, value: Any) -> Any:
        shortened, size = shorten(value, max(0, self._left))
        if size is None and isinstance(shortened, str | list | dict):
            self._left -= len(str(shortened))
        return NULL if shortened is None else shortened

    def call(self, call: DryCall) -> DryCallView:
        return DryCallView(
            step=call.step, path=call.path, iteration=call.iteration or None, method=call.method, args=self.show(call.args),
            effect=call.effect, answered_by=call.answered_by, ok=call.ok, answer=self.show(call.answer),
        )  # fmt: skip

    def step(self, step: StepDryRun) -> StepTestView:
        run = step.run
        return StepTestView(
            step=run.step, path=run.path, iteration=run.iteration or None, kind=run.kind, status=run.status,
            result_source="mocked" if run.result_source == "mocked" else "executed", input=self.show(run.input),
            output=self.show(run.output) if run.status in ("succeeded", "skipped") else None,
            error=dict(run.error) if run.error else None,
            duration_ms=run.finished_at - run.started_at if run.finished_at and run.started_at else None,
            calls=[self.call(call) for call in step.calls],
            logs=[
                TestLineView(at=clock.rfc3339(line.at_ms), level=line.level, message=line.message, fields=line.fields)
                for line in step.logs
            ],
        )  # fmt: skip


def test_view(dry_run: DryRun) -> TestView:
    builder = _ViewBuilder()
    return TestView(
        process_id=dry_run.process_id, version=dry_run.version, status=dry_run.status,
        output=builder.show(dry_run.output) if dry_run.status == "succeeded" else None,
        error=dict(dry_run.error) if dry_run.error else None,
        steps=[builder.step(step) for step in dry_run.steps[:MOST_STEPS]], step_count=len(dry_run.steps),
        effects=[builder.call(call) for call in dry_run.effects[:MOST_STEPS]], unused_mocks=dry_run.unused_mocks,
        duration_ms=dry_run.duration_ms,
    )  # fmt: skip


@route(
    "POST", "/processes/{process_id}/test", scope="processflow.write", body=TestBody, returns=TestView, atomic=False,
    errors=(ConcurrencyLimited, NotPublished),
)  # fmt: skip
def test_process(call: Call, process_id: str) -> TestView:
    """Test a draft, version or step without effects.

    Code runs, and reads from the DataPool and integrations are real. Every call that would have an effect is listed in `effects`
    and answered by `mocks`, else by the step's own `mock`, else by the pinned `sample`, else by a stand-in: null, an approval,
    or the record a write would have created. `mocks` are `{<step>: {output | outputs | error | calls}, <method>/<path>: {output
    | outputs | error}}`, where `outputs` are used one after another and a call is named like
    `integrations.execute/erp/create_order`. The key also needs processflow.execute and processflow.read, because a test reads
    foreign systems and shows the data.
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
    """The content of a sample."""

    input: Annotated[
        dict[str, Any] | None, Field(description="The input object to pin; default: that of `from_execution`, else `{}`.")
    ] = None
    steps: Annotated[dict[str, Any], Field(default_factory=dict, description=(
        "Outputs to pin, by step id; they take precedence over those of `from_execution`. At most 1 MiB with the input."
    ))]
    from_execution: Annotated[str | None, Field(min_length=1, max_length=100, description=(
        "The execution of this process to copy from; `exe_…`. Outputs inside a `for_each` or over 256 KiB are left out."
    ))] = None


class SampleSummary(View):
    """A sample without its values."""

    name: Annotated[str, Field(description="The name of the sample, a slug unique in the process.")]
    from_execution: Annotated[
        str | None, Field(description="The execution that the values were copied from; `exe_…`. Absent if none.")
    ] = None
    created_at: Annotated[str, Field(description="When the sample was created; RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="When the sample was last replaced; RFC 3339, UTC.")]


class SampleView(SampleSummary):
    """A sample with its values."""

    input: Annotated[dict[str, Any], Field(description="The input object that tests with this sample start from.")]
    steps: Annotated[dict[str, Any], Field(description="The pinned outputs, by step id; null for a step without a result.")]


def sample_summary(row: SampleRow) -> SampleSummary:
    return SampleSummary(
        name=row.name, from_execution=row.from_execution, created_at=clock.rfc3339(row.created_at),
        updated_at=clock.rfc3339(row.updated_at),
    )  # fmt: skip


def sample_view(row: SampleRow) -> SampleView:
    return SampleView(**sample_summary(row).model_dump(), input=row.input, steps=_with_explicit_nulls(row.steps))


def _with_explicit_nulls(outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: NULL if value is None else value for name, value in outputs.items()}


_SAMPLES = "/processes/{process_id}/samples"


@route("GET", _SAMPLES, scope="processflow.read", returns=SampleSummary, listed=True)
def list_samples(call: Call, process_id: str) -> Page[SampleSummary]:
    """List the samples of a process.

    Sorted by `name`; `sort` also takes `updated_at`. A process has at most 50; their values are shown one by one.
    """
    return samples.list_samples(call.scope, process_id, call.query.page).map(sample_summary)


@route("GET", f"{_SAMPLES}/{{name}}", scope="processflow.read", returns=SampleView)
def get_sample(call: Call, process_id: str, name: str) -> SampleView:
    """Show a sample.

    A sample has an input, and outputs by step id.
    """
    return sample_view(samples.get_sample(call.scope, process_id, name))


@route(
    "PUT", f"{_SAMPLES}/{{name}}", scope="processflow.write", body=SampleBody, returns=SampleView, also={201: SampleView},
    errors=(Conflict,),
)  # fmt: skip
def put_sample(call: Call, process_id: str, name: str) -> Answer:
    """Create or replace a sample of a process.

    `from_execution` copies the input and step outputs of an execution of this process, which needs processflow.read; `input` and
    `steps` override copied values. The sample stays when the execution is deleted.
    """
    body: SampleBody = call.body
    if body.from_execution is not None:
        call.scope.require("processflow.read")
    row, new = samples.pin_sample(call.scope, process_id, name, Sample(body.input, body.steps, body.from_execution))
    headers = {"Location": f"/api/v1/processes/{process_id}/samples/{name}"} if new else {}
    return Answer(sample_view(row), status=201 if new else 200, headers=headers)


@route("DELETE", f"{_SAMPLES}/{{name}}", scope="processflow.write", returns=DeletedView)
def delete_sample(call: Call, process_id: str, name: str) -> DeletedView:
    """Delete a sample.

    A test that names it is refused from then on.
    """
    samples.delete_sample(call.scope, process_id, name)
    return DeletedView(deleted=name)
