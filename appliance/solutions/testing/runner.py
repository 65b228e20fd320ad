"""Runs the tests of a solution: cases as dry runs in a tenant of their own, test tables in the decision engine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.integrations import is_marker
from appliance.processes import ProcessFlow
from appliance.processes.rehearsal import DryRun, DryRunRequest, find_differences, run_tables
from appliance.sandbox import Pool
from appliance.solutions.definition import Solution
from appliance.solutions.service import SolutionServices, apply_solution
from appliance.solutions.testing.cases import Case
from appliance.tenants import service as tenants

_PLACEHOLDER, _SEALED = "stands-in-for-a-secret", "sealed_where_it_came_from"
_MAX_DIFFERENCES = 20


@dataclass(frozen=True)
class CaseResult:
    """The result of one case, which passes if there are no problems.  `status`, `output` and `error` are those of the run."""

    kind: Literal["process", "rule", "agent"]
    file: str
    line: int | None
    name: str
    process: str
    problems: tuple[str, ...]
    duration_ms: int = 0
    status: str = ""
    output: Any = None
    error: Mapping[str, Any] | None = None
    logs: tuple[str, ...] = ()
    agent: str = ""
    usage: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        return not self.problems


def set_up_tenant(scope: TenantScope, sealer: Sealer, tools: SolutionServices, solution: Solution) -> None:
    """Apply the solution to a tenant used only for tests, with a placeholder for every secret it needs and without its WebApps,
    which no case uses.

    DefinitionInvalid and Conflict as for any apply.
    """
    for name in (*solution.needed_secrets(), _SEALED):
        tenants.set_secret(scope, sealer, name, _PLACEHOLDER)
    integrations = {
        slug: replace(each, spec=replace(each.spec, settings=_without_markers(each.spec.settings)))
        for slug, each in solution.integrations.items()
    }
    apply_solution(scope, tools, replace(solution, integrations=integrations, webapps={}))


def _without_markers(value: Any) -> Any:
    """The settings with every sealed secret replaced by a reference to the placeholder secret."""
    if is_marker(value):
        return f"= secrets.{_SEALED}"
    if isinstance(value, Mapping):
        return {name: _without_markers(inner) for name, inner in value.items()}
    return [_without_markers(inner) for inner in value] if isinstance(value, list) else value


def run_rule_cases(pool: Pool, solution: Solution, text: str = "") -> Iterator[CaseResult]:
    """Run the cases of the decisions' test tables whose file or name contains `text`."""
    for process_id, process in sorted(solution.processes.items()):
        began = clock.monotonic()
        for result in run_tables(pool, "", process.draft.files):
            case, problems = result.case, (result.problem,) if result.problem is not None else ()
            file = f"processes/{process_id}/{case.file}"
            if text in f"{file} {case.name}":
                yield CaseResult(
                    kind="rule", file=file, line=case.line, name=case.name, process=process_id, problems=problems,
                    duration_ms=_elapsed_ms(began),
                )
            began = clock.monotonic()


def run_case(flow: ProcessFlow, scope: TenantScope, case: Case) -> CaseResult:
    """Run one case; its records exist while it runs."""
    began = clock.monotonic()
    result = CaseResult("process", case.file, case.line, case.name, case.process, ())
    request = DryRunRequest(
        input=case.input, step=case.step, mocks=case.mocks, context_steps=case.context.get("steps", {}),
        context_items=case.context.get("items", {}),
    )  # fmt: skip
    try:
        with temporary_records(scope, case.records):
            run = flow.test_process(scope, case.process, request, offline=True)
    except ApplianceError as error:
        return replace(result, problems=tuple(_refusal(case, error)), duration_ms=_elapsed_ms(began), status="refused")
    logs = tuple(f"{step.run.step}: {line.level} {line.message}" for step in run.steps for line in step.logs)
    return replace(
        result, problems=tuple(_problems(case, run)), duration_ms=_elapsed_ms(began), status=run.status, output=run.output,
        error=run.error, logs=logs,
    )  # fmt: skip


def _elapsed_ms(began: float) -> int:
    return round((clock.monotonic() - began) * 1000)


@contextmanager
def temporary_records(scope: TenantScope, records: Mapping[str, list[Any]]) -> Iterator[None]:
    """Create the records in DataPool for the duration of the block."""
    created: list[tuple[str, str]] = []
    try:
        for collection, values in ((name, each) for name, entities in records.items() for each in entities):
            created.append((collection, datapool.create_entity(scope, collection, values)["id"]))
        yield
    finally:
        for collection, entity_id in reversed(created):
            datapool.delete_entity(scope, collection, entity_id)


def _problems(case: Case, run: DryRun) -> Iterator[str]:
    """Every difference between the run and the expectations, one sentence each."""
    expect = case.expect
    if run.status != expect.status:
        why = f": {run.error['message']} (step {run.error.get('step', '-')})" if run.error else ""
        yield f"status: expected {expect.status}, found {run.status}{why}"
    elif expect.output:
        yield from describe_differences("output", expect.output["output"], run.output)
    if expect.error is not None and run.error is not None:
        yield from describe_error_differences("error", expect.error, run.error)
    for name, expected in expect.steps.items():
        yield from _step_problems(name, expected, run)
    if expect.effects is not None:
        yield from describe_differences("effects", expect.effects, _calls(run.effects))
    if expect.calls is not None:
        yield from describe_differences("calls", expect.calls, _calls(run.calls))
    for name in run.unused_mocks:
        yield f"mocks: nothing asked for {name}"


def _refusal(case: Case, error: ApplianceError) -> Iterator[str]:
    """The problems of a case that did not start; none if that was expected."""
    if case.expect.status == "refused":
        message = " ".join([error.message, *(detail.message for detail in error.details)])
        yield from describe_error_differences("error", case.expect.error or {}, {"code": error.code, "message": message})
        return
    yield error.message
    yield from (detail.message for detail in error.details if detail.message not in error.message)


def describe_differences(name: str, expected: Any, actual: Any) -> Iterator[str]:
    """The differences between expected and actual value, one sentence each."""
    differences = list(find_differences(expected, actual))
    for each in differences[:_MAX_DIFFERENCES]:
        yield name + each.describe().replace("/:", ":", 1) if not each.pointer else name + each.describe()
    if len(differences) > _MAX_DIFFERENCES:
        yield f"{name}: and {len(differences) - _MAX_DIFFERENCES} more differences"


def describe_error_differences(prefix: str, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[str]:
    """The members in which an error differs from the expected one; for the message a part is enough."""
    for name, value in expected.items():
        value_found = actual.get(name)
        if name == "message" and isinstance(value, str) and value in str(value_found):
            continue
        if value_found != value:
            yield f"{prefix}/{name}: expected {value!r}, found {value_found!r}"


def _step_problems(name: str, expected: Mapping[str, Any], run: DryRun) -> Iterator[str]:
    runs = [step.run for step in run.steps if name in (step.run.step, step.run.path)]
    prefix = f"steps/{name}"
    if "times" in expected and len(runs) != expected["times"]:
        yield f"{prefix}/times: expected {expected['times']}, found {len(runs)}"
    if not runs:
        if set(expected) != {"times"}:
            yield f"{prefix}: it did not run"
        return
    if "outputs" in expected:
        yield from describe_differences(f"{prefix}/outputs", expected["outputs"], [each.output for each in runs])
    last = runs[-1]
    for member in ("status", "result_source", "output"):
        if member in expected:
            yield from describe_differences(f"{prefix}/{member}", expected[member], getattr(last, member))
    if "error" in expected:
        if last.error is None:
            yield f"{prefix}/error: there was none"
        elif isinstance(expected["error"], Mapping):
            yield from describe_error_differences(f"{prefix}/error", expected["error"], last.error)


def _calls(calls: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(call).items() if name != "answer"} for call in calls]
