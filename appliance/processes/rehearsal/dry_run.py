"""Dry run: runs a draft or a version in memory, as a whole or a single step, without side effects."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from appliance.core import clock, ids
from appliance.core.errors import TimedOut, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.definitions.nodes import Step
from appliance.processes.engine.decide import Close, Decision, History, Key, Ready, StepRun
from appliance.processes.engine.evaluation import fill
from appliance.processes.engine.failures import TIMED_OUT_TEXT, StepFailed, make_error
from appliance.processes.engine.job import Job
from appliance.processes.engine.store import Claim
from appliance.processes.engine.task import StepServices
from appliance.processes.executions.service import check_input
from appliance.processes.host.authority import required_access
from appliance.processes.host.version_grants import trial_scopes
from appliance.processes.steps import for_each

from .dry_run_calls import DryCall, DryCalls, RealSystems
from .dry_run_host import timeout_message
from .dry_run_steps import DrySteps, StepDryRun
from .mocks import parse_mocks
from .replay import find_step
from .samples import get_sample

__all__ = ["DryCall", "DryRun", "DryRunRequest", "StepDryRun"]
MOST_STEP_RUNS = 10_000


@dataclass(frozen=True)
class DryRunRequest:
    """What to test, and the values to test it with.

    `version` None is the draft.  `step` (id or path) tests that step alone: `context_steps` are the outputs it sees as
    `steps`, `context_items` the items of the enclosing for_each steps, by name.  `mocks` has the form of
    `mocks.parse_mocks`.  A `sample` of the process supplies the `input`, if that is None, and outputs by step id: the context of
    a single step, and the answers of steps with side effects that have no mock.  `pinned` are additional outputs.
    """

    input: Mapping[str, Any] | None = None
    version: int | None = None
    step: str | None = None
    mocks: Mapping[str, Any] = field(default_factory=dict)
    context_steps: Mapping[str, Any] = field(default_factory=dict)
    context_items: Mapping[str, Any] = field(default_factory=dict)
    pinned: Mapping[str, Any] = field(default_factory=dict)
    sample: str | None = None


@dataclass
class DryRun:
    """The result of a test: how an execution would have ended, with its step runs in order and the calls they made.

    `unused_mocks` are the names of mocks that no step or call used.
    """

    process_id: str
    version: int | Literal["draft"]
    status: Literal["succeeded", "failed", "timed_out"] = "succeeded"
    output: Any = None
    error: Mapping[str, Any] | None = None
    steps: list[StepDryRun] = field(default_factory=list)
    calls: list[DryCall] = field(default_factory=list)
    unused_mocks: list[str] = field(default_factory=list)
    duration_ms: int = 0

    @property
    def effects(self) -> list[DryCall]:
        """The calls that would have had side effects: all but the reading ones."""
        return [call for call in self.calls if call.effect != "read"]


class _Walk:
    """An execution in memory, driven by the engine; with `only`, the path of a step, no other step is performed."""

    def __init__(self, tools: StepServices, job: Job, steps: DrySteps, request: DryRunRequest, ends: float) -> None:
        self._tools, self._job, self._steps, self._ends = tools, job, steps, ends
        self._outputs = {**request.pinned, **request.context_steps}
        self._items = request.context_items
        self.reports: dict[Key, StepDryRun] = {}

    def walk(self, only: str | None) -> Decision:
        """Runs until nothing is left to do or the step at path `only` has ended; returns the engine's last decision."""
        history = self._job.history
        while True:
            decision = history.decide(clock.now_ms())
            if decision.failed is not None or self._is_over(only):
                return decision
            for run in decision.give_up:
                history.put(self._update_report(run))
            for close in decision.close:
                history.put(self._close(close))
            if not decision.close and not decision.give_up:
                if not decision.ready:
                    return decision
                for ready in self._next(decision, only):
                    history.put(self._perform(ready, only))

    @staticmethod
    def _next(decision: Decision, only: str | None) -> list[Ready]:
        """The steps to perform next; stop steps come after all others."""
        ready = [each for each in decision.ready if each.step.kind != "stop"] or decision.ready
        return ready if only is None else ready[:1]

    def _is_over(self, only: str | None) -> bool:
        return only is not None and any(
            path == only and report.run.status != "running" for (path, _), report in self.reports.items()
        )

    def _perform(self, ready: Ready, only: str | None) -> StepRun:
        if clock.monotonic() >= self._ends:
            raise TimedOut(timeout_message())
        if len(self.reports) >= MOST_STEP_RUNS:
            raise ValidationFailed(
                Sentence("a test has at most %(most_step_runs)s step runs; test it with fewer items", most_step_runs=MOST_STEP_RUNS)
            )
        if only is not None and ready.step.path != only and not ready.step.path.startswith(f"{only}/"):
            return self._run_of_other(ready.step, ready.iteration, only)
        report = self._steps.perform(ready)
        self.reports[report.run.path, report.run.iteration] = report
        return report.run

    def _run_of_other(self, step: Step, iteration: str, only: str) -> StepRun:
        """A step that is not tested: skipped with its output from the context, or open if it encloses the tested step."""
        run = StepRun(step.path, iteration, step.id, step.kind, "skipped", output=self._outputs.get(step.id))
        if not only.startswith(f"{step.path}/"):
            return run
        return replace(run, status="running", output=None, state=self._state(step, only))

    def _state(self, step: Step, only: str) -> dict[str, Any]:
        if step.kind == "parallel":
            return {"branches": [block.name for block in step.blocks]}
        if step.kind == "branch":
            blocks = enumerate(step.blocks)
            return {"taken": next(index for index, block in blocks if any(_is_within(only, inner.path) for inner in block.steps))}
        name = step.settings["as"]
        if name not in self._items:
            message = Sentence(
                "the step is inside the for_each %(id)s; pass the item as context: {items: {%(name)s: …}}", id=step.id, name=name
            )
            raise ValidationFailed(message, pointer=f"/context/items/{name}")
        return {"items": [self._items[name]]}

    def _close(self, close: Close) -> StepRun:
        """Finishes a branch, a parallel or a for_each."""
        run = replace(close.run, status="succeeded", output=close.output, finished_at=clock.now_ms())
        if close.error is not None:
            run = replace(run, status="failed", output=None, error=close.error)
        elif close.step.kind == "for_each":
            names = self._job.names(close.iteration, close.step.path)
            try:
                run.output = for_each.collect(self._tools, close, self._job.history, names, clock.now_ms())
            except StepFailed as failed:
                run = replace(run, status="failed", output=None, error={**failed.error, "step": run.step, "attempt": 1})
            if close.errors:
                run.state = {**run.state, "errors": for_each.summarize_errors(close.errors)}
        return self._update_report(run)

    def _update_report(self, run: StepRun) -> StepRun:
        report = self.reports.get((run.path, run.iteration))
        if report is not None:
            report.run = run
        return run


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}/")


def run_dry(
    tools: StepServices, outside: RealSystems, scope: TenantScope, compiled: CompiledVersion, request: DryRunRequest, seconds: float
) -> DryRun:
    """Runs `compiled` (of the requested version) for at most `seconds`; raises ValidationFailed for a wrong input, step or mock."""
    started = clock.monotonic()
    if request.sample is not None:
        sample = get_sample(scope, compiled.definition.id, request.sample)
        payload = sample.input if request.input is None else request.input
        request = replace(request, input=payload, pinned={**sample.steps, **request.pinned})
    payload = dict(request.input or {})
    only = find_step(request.step, compiled) if request.step is not None else None
    if only is not None and only in compiled.definition.compensation_paths:
        raise ValidationFailed("that step runs only after an execution has failed, so a test never reaches it", pointer="/step")
    if only is None:
        check_input(scope, compiled, payload)
    now = clock.now_ms()
    definition = compiled.definition
    claim = Claim(
        scope=scope, execution_id=ids.new("tst"), process_id=definition.id, version=request.version or 0, fence=-1, input=payload,
        label=None, created_at=now, started_at=now, active_ms=0, cancel_requested=False, request_id=scope.request_id, claims=0,
    )  # fmt: skip
    job = Job(claim, compiled, History(definition), definition.timeout_ms or int(seconds * 1000) + 1000)
    mocks = parse_mocks(request.mocks, compiled.steps)
    calls = DryCalls(claim, outside, mocks, trial_scopes(scope, definition.id, required_access(definition)))
    walk = _Walk(tools, job, DrySteps(tools, job, calls, request.pinned, started + seconds), request, started + seconds)
    report = DryRun(definition.id, request.version or "draft")
    decision = walk.walk(only)
    _conclude(tools, job, report, decision, walk.reports.get(_key_of(walk.reports, only)) if only else None)
    report.steps, report.calls, report.unused_mocks = list(walk.reports.values()), calls.calls, mocks.unused()
    report.duration_ms = int((clock.monotonic() - started) * 1000)
    return report


def _key_of(reports: Mapping[Key, StepDryRun], only: str) -> Key:
    return next((key for key in reports if key[0] == only), (only, ""))


def _conclude(tools: StepServices, job: Job, report: DryRun, decision: Decision, only: StepDryRun | None) -> None:
    """Sets the status and output: those of the tested step, or those that the execution would have."""
    if decision.failed is not None:
        report.status, report.error = "failed", dict(decision.failed.error or {})
    elif only is not None:
        report.output = only.run.output
    elif job.remaining_ms() <= 0:
        message = TIMED_OUT_TEXT % {"seconds": job.limit_ms / 1000}
        report.status, report.error = "timed_out", make_error("execution_timeout", "timeout", message)
    else:
        report.output = decision.output
        template = job.compiled.definition.output
        if decision.stopped or template is None:
            return
        try:
            report.output = fill(tools.pool, {"output": template}, job.names(""), clock.now_ms())["output"]
        except StepFailed as failed:
            report.status, report.output, report.error = "failed", None, failed.error
