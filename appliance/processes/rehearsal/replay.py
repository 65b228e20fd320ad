"""Replay: runs a finished execution again in memory against its journal, with its own or other code; writes nothing."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from appliance.core import clock
from appliance.core.errors import TimedOut, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions import versions
from appliance.processes.definitions.compiled import CompiledVersion, compile_version
from appliance.processes.definitions.definition import DefinitionProblems
from appliance.processes.engine.decide import Close, Decision, History, Key, Ready, StepRun
from appliance.processes.engine.evaluation import fill
from appliance.processes.engine.failures import StepFailed
from appliance.processes.engine.job import Job
from appliance.processes.engine.task import StepServices
from appliance.processes.executions.record import ExecutionRecord
from appliance.processes.host.authority import required_access
from appliance.processes.host.version_grants import trial_scopes
from appliance.processes.models import Process
from appliance.processes.steps import for_each
from appliance.tenants import ALL_SCOPES

from .difference import Change, is_same_json, list_changes
from .replay_host import timeout_message
from .replay_steps import Divergence, StepReplay, StepReplays, as_recorded, compare

__all__ = ["Change", "Divergence", "StepReplay"]


@dataclass(frozen=True)
class ReplayRequest:
    """What to replay: with a version, the `draft` or the execution's own version; one `step` (id or path) or everything."""

    version: int | None = None
    step: str | None = None
    draft: bool = False


@dataclass
class Replay:
    """The comparison of an execution (`is_whole`), or one of its steps, with its record, in the order of the replay."""

    execution_id: str
    version: int
    replayed_version: int | Literal["draft"]
    steps: list[StepReplay] = field(default_factory=list)
    recorded_output: Any = None
    replayed_output: Any = None
    changes: list[Change] = field(default_factory=list)
    same_end: bool = True
    is_whole: bool = True

    @property
    def is_identical(self) -> bool:
        """Whether every step run and the execution had the same result."""
        return self.same_end and not self.changes and self.first is None

    @property
    def first(self) -> StepReplay | None:
        """The first step run that differs from its record."""
        return next((step for step in self.steps if step.result != "identical"), None)


def load_draft(scope: TenantScope, process_id: str) -> CompiledVersion:
    """The compiled draft; raises DefinitionInvalid when it cannot be parsed."""
    row = scope.get(Process, id=process_id)
    try:
        return compile_version(scope.tenant_id, row.definition, row.files)
    except DefinitionProblems as error:
        versions.raise_problems(error.problems)
        raise


class ReplayWalk:
    """Drives one execution through the engine again, replaying its recorded steps until nothing is left to do.

    Raises TimedOut when that takes longer than `seconds`.
    """

    def __init__(
        self, tools: StepServices, record: ExecutionRecord, compiled: CompiledVersion, seconds: float, *, opens_secrets: bool
    ) -> None:
        limit = compiled.definition.timeout_ms or 3_600_000
        self._tools, self._record = tools, record
        self._job = Job(record.claim, compiled, History(compiled.definition), limit)
        self._ends = clock.monotonic() + seconds
        self._steps = StepReplays(tools, record, self._job, self._ends, opens_secrets=opens_secrets)
        self._is_own = compiled is record.compiled
        self._only: str | None = None
        self.reports: dict[Key, StepReplay] = {}

    def walk(self, only: str | None) -> Decision:
        """Replays the step at path `only` with its inner steps, or everything; returns the engine's last decision."""
        self._only = only
        while True:
            decision = self._job.history.decide(self._record.row.finished_at or clock.now_ms())
            if decision.close or decision.give_up:
                for run in decision.give_up:
                    self._job.history.put(self._close_abandoned(run))
                for close in decision.close:
                    self._job.history.put(self._close(close))
                continue
            batch = self._next(decision)
            if not batch and (decision.done or not self._begin_completion()):
                return decision
            for ready in batch:
                if clock.monotonic() >= self._ends:
                    raise TimedOut(timeout_message())
                run, recorded = self._replay(ready), self._record.find(ready.step.path, ready.iteration)
                self._job.history.put(run if recorded is None else replace(run, undo_order=recorded.run.undo_order))

    def _begin_completion(self) -> bool:
        """Continues with compensation and the failure process if the record does, with the recorded error; whether it does."""
        state = self._record.row.aftermath or {}
        if self._job.compensation is not None or "status" not in state:
            return False
        self._job.history.final_status = state["status"]
        self._job.start_compensation(state, self._job.history)
        return True

    def _next(self, decision: Decision) -> list[Ready]:
        """The steps to replay next: first those that succeeded, then those that failed or stopped, then unrecorded ones.

        In this order everything that was done in parallel with a failure is replayed too.
        """
        ranks: tuple[list[Ready], list[Ready], list[Ready]] = ([], [], [])
        for ready in decision.ready:
            recorded = self._record.find(ready.step.path, ready.iteration)
            is_last = recorded is not None and (recorded.is_failed or ready.step.kind == "stop")
            ranks[2 if recorded is None else 1 if is_last else 0].append(ready)
        succeeded, failed, new = ranks
        if succeeded or failed:
            return succeeded or failed
        # The recorded execution did not get this far, so the replay ends here.
        ends_here = decision.failed is not None or (
            self._is_own and all(each.result == "identical" for each in self.reports.values())
        )
        return [] if ends_here else new

    def _replay(self, ready: Ready) -> StepRun:
        path, iteration = ready.step.path, ready.iteration
        recorded = self._record.find(path, iteration)
        if self._only is not None and not _is_within(path, self._only):
            if recorded is None:
                return StepRun(path, iteration, ready.step.id, ready.step.kind, "succeeded")
            if recorded.run.state is not None and self._only.startswith(f"{path}/"):
                return replace(recorded.run, status="running")
            return as_recorded(recorded)
        if recorded is not None and (recorded.run.status == "cancelled" or (self._is_own and recorded.is_reused)):
            self._add_report(StepReplay(ready.step.id, path, iteration, ready.step.kind, "identical"))
            return self._reopened(ready, recorded.run) or as_recorded(recorded)
        run, report = self._steps.replay(ready, recorded)
        self._add_report(report)
        return run

    @staticmethod
    def _reopened(ready: Ready, run: StepRun) -> StepRun | None:
        """A reused step with inner steps, open so that they follow; None for any other step."""
        return replace(run, status="running") if ready.step.blocks and run.state is not None else None

    def _close_abandoned(self, run: StepRun) -> StepRun:
        """A run that was cut off by a failure in a parallel branch while the process continued."""
        key = (run.path, run.iteration)
        recorded = self._record.find(*key)
        if key not in self.reports and recorded is not None and recorded.run.status == run.status:
            self._add_report(StepReplay(run.step, run.path, run.iteration, run.kind, "identical"))
        return run

    def _add_report(self, report: StepReplay) -> None:
        self.reports[report.path, report.iteration] = report

    def _close(self, close: Close) -> StepRun:
        """Finishes a branch or for_each and compares its result as a whole."""
        run = replace(close.run, status="succeeded", output=close.output, error=None)
        recorded = self._record.find(close.step.path, close.iteration)
        if close.error is not None:
            run = replace(run, status="failed", output=None, error=close.error)
        elif close.step.kind == "for_each":
            names = self._job.names(close.iteration, close.step.path)
            now = (recorded.run.finished_at if recorded else None) or clock.now_ms()
            try:
                run.output = for_each.collect(self._tools, close, self._job.history, names, now)
            except StepFailed as failed:
                run = replace(run, status="failed", output=None, error=failed.error)
            if close.errors:
                run.state = {**run.state, "errors": for_each.summarize_errors(close.errors)}
        report = self.reports.get((close.step.path, close.iteration))
        if report is not None and report.result == "identical" and recorded is not None:
            compare(report, replace(recorded.run, state=None), replace(run, state=None))
        if run.status == "failed" and recorded is not None and not recorded.is_failed:
            return as_recorded(recorded)
        return run

    # -- results

    def unreached_runs(self, decision: Decision) -> list[StepReplay]:
        """The recorded step runs that the replay did not reach, except those cancelled by a stop that the replay had too."""
        missing = [each.run for key, each in self._record.runs.items() if key not in self.reports]
        if decision.stopped:
            missing = [run for run in missing if run.status != "cancelled"]
        missing.sort(key=lambda run: (run.started_at or 0, run.path, run.iteration))
        return [
            StepReplay(
                run.step, run.path, run.iteration, run.kind, "skipped", recorded_output=run.output, recorded_error=run.error,
                divergence=Divergence(None, {"status": run.status}, None),
            )
            for run in missing
        ]  # fmt: skip

    def output(self, decision: Decision) -> tuple[bool, Any]:
        """(whether the execution succeeds, its output)."""
        if not decision.done or self._job.compensation is not None:
            return False, None
        template = self._job.compiled.definition.output
        if decision.stopped or template is None:
            return True, decision.output
        try:
            now = self._record.row.finished_at or clock.now_ms()
            return True, fill(self._tools.pool, {"output": template}, self._job.names(""), now)["output"]
        except StepFailed:
            return False, None


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}/")


def find_step(name: str, *candidates: CompiledVersion, pointer: str = "/step") -> str:
    """The path of the step with this id or path; raises ValidationFailed when no candidate has it."""
    for compiled in candidates:
        for path, step in compiled.steps.items():
            if name in (path, step.id):
                return path
    names = ", ".join(candidates[0].steps)
    raise ValidationFailed(
        Sentence("there is no step %(name)s; the steps are %(known)s", name=repr(name[:80]), known=names), pointer=pointer
    )


def replay(
    tools: StepServices, record: ExecutionRecord, compiled: CompiledVersion, request: ReplayRequest, seconds: float
) -> Replay:
    """Replays an execution with `compiled` and compares it with its record."""
    row = record.row
    report = Replay(row.id, row.version, "draft" if request.draft else request.version or row.version)
    # No owner has allowed a draft, so it may use no more than the person who replays it.
    scopes = trial_scopes(record.scope, row.process_id, required_access(compiled.definition)) if request.draft else ALL_SCOPES
    walk = ReplayWalk(tools, record, compiled, seconds, opens_secrets="secrets.write" in scopes)
    if request.step is not None:
        path = find_step(request.step, compiled, record.compiled)
        walk.walk(path)
        report.steps, report.is_whole = list(walk.reports.values()), False
        if not report.steps:
            raise ValidationFailed("this execution never reached that step, so there is nothing to replay", pointer="/step")
        return report
    decision = walk.walk(None)
    report.steps = [*walk.reports.values(), *walk.unreached_runs(decision)]
    succeeds, output = walk.output(decision)
    report.recorded_output, report.replayed_output = row.output, output
    report.changes = list_changes(row.output, output)
    report.same_end = succeeds == (row.status == "succeeded") and is_same_json(row.output, output)
    return report
