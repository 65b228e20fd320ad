"""Replays one step run against its record: pure kinds are evaluated, code uses the journal, side effects are only compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from appliance.core import clock
from appliance.core.errors import Overloaded, TimedOut
from appliance.processes.definitions.nodes import BLOCK_KINDS
from appliance.processes.engine.attempts import visible_input
from appliance.processes.engine.decide import FINISHED, Ready, StepRun
from appliance.processes.engine.evaluation import fill, is_true
from appliance.processes.engine.failures import LOST_CODES, StepFailed, check_output, from_sandbox
from appliance.processes.engine.job import Job
from appliance.processes.engine.store import JournalEntry
from appliance.processes.engine.task import StepServices, Task
from appliance.processes.executions.record import ExecutionRecord, RecordedRun
from appliance.processes.host.final_entries import FinalEntry, recorded_clock
from appliance.processes.host.model_calls import replay_answer
from appliance.processes.host.vault import SECRET
from appliance.processes.steps import perform
from appliance.processes.steps.code import facts_of, limits_of, seed_of, vault_of
from appliance.sandbox import Entropy, Outcome

from .difference import Change, is_same_json, list_changes
from .replay_host import EndOfRecord, ReplayDiverged, ReplayHost, timeout_message, to_view

Comparison = Literal["identical", "output_differs", "diverged", "not_recorded", "skipped"]
EVALUATED = frozenset({"rule", "stop", *BLOCK_KINDS})
# Failures that the code did not cause: a record that ends with one ends the replay too.
OUTSIDE = frozenset({"timeout", "system"})
NOT_GRANTED = "[a secret that this step has no grant for]"


@dataclass(frozen=True)
class Divergence:
    """Where a step diverged: at a host call (its number), or in its decision, request or result (None)."""

    call: int | None
    recorded: Any
    replayed: Any


@dataclass
class StepReplay:
    """The comparison of one step run; outputs and errors are set where they differ, `error` is the replay's failure."""

    step: str
    path: str
    iteration: str
    kind: str
    result: Comparison
    recorded_output: Any = None
    replayed_output: Any = None
    recorded_error: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    changes: list[Change] = field(default_factory=list)
    divergence: Divergence | None = None


class StepReplays:
    """Replays step runs of `job`, an execution in memory only, until the deadline `ends` (monotonic seconds).

    Side effects are never performed, so only the sandbox and the limits of `tools` are used.
    """

    def __init__(self, tools: StepServices, record: ExecutionRecord, job: Job, ends: float, *, opens_secrets: bool) -> None:
        self._tools, self._record, self._job, self._ends = tools, record, job, ends
        self._opens_secrets = opens_secrets

    def replay(self, ready: Ready, recorded: RecordedRun | None) -> tuple[StepRun, StepReplay]:
        """The run with which the execution continues in memory, and its comparison."""
        if recorded is None or recorded.run.kind != ready.step.kind:
            return self._perform_new(ready)
        report = StepReplay(ready.step.id, ready.step.path, ready.iteration, ready.step.kind, "identical")
        try:
            run = self._perform(ready, recorded)
        except StepFailed as failed:
            run = self._failed(ready, failed)
        except ReplayDiverged as diverged:
            report.result, report.divergence = "diverged", Divergence(diverged.call, diverged.recorded, diverged.replayed)
            return as_recorded(recorded), report
        except EndOfRecord as ends:
            if (recorded.run.error or {}).get("failure_class") not in OUTSIDE:
                call = to_view(ends.call.method, ends.call.args)
                report.result = "diverged"
                report.divergence = Divergence(ends.call.id, {**call, "answered": False} if ends.is_recorded else None, call)
            return as_recorded(recorded), report
        compare(report, recorded.run, run)
        if run.status == "failed" and not recorded.is_failed:
            run = as_recorded(recorded)
        return run, report

    def _perform_new(self, ready: Ready) -> tuple[StepRun, StepReplay]:
        """A step without a record: evaluated if it is pure; any other has the output null."""
        report = StepReplay(ready.step.id, ready.step.path, ready.iteration, ready.step.kind, "not_recorded")
        report.divergence = Divergence(None, None, {"kind": ready.step.kind})
        try:
            run = self._perform(ready, None)
            report.replayed_output = run.output
        except StepFailed as failed:
            run = self._failed(ready, failed)
            report.error = run.error
        except (ReplayDiverged, EndOfRecord):
            run = self._run_of(ready, "succeeded", None)
        return run, report

    # -- performing

    def _perform(self, ready: Ready, recorded: RecordedRun | None) -> StepRun:
        step = ready.step
        journal, final = self._record.journal(recorded) if recorded else ([], FinalEntry())
        started = recorded.run.started_at if recorded else None
        now = final.now or started or self._record.row.finished_at or clock.now_ms()
        claim = recorded.claim if recorded else self._record.claim
        names = self._job.names(ready.iteration, step.path)
        if claim is not self._job.claim:
            names["execution"] = replace(self._job, claim=claim).names("")["execution"]
        if step.when is not None and not is_true(fill(self._tools.pool, {"when": step.when}, names, now)["when"]):
            return self._run_of(ready, "skipped", None)
        templates = {name: template for name, template in step.templates.items() if name != "expression"}
        filled = fill(self._tools.pool, templates, names, now)
        task = Task(
            step=step, iteration=ready.iteration, attempt=recorded.run.attempt if recorded else 1, claim=claim,
            compiled=self._job.compiled, names=names, filled=filled, input=filled.get("step_input", claim.input), now=now,
            time_ms=final.wall_ms or self._job.limit_ms, is_cancelled=lambda: False,
        )  # fmt: skip
        if recorded is not None and recorded.run.result_source == "cached":
            return self._take_recorded(ready, task, recorded)
        if step.kind == "code":
            return self._run_code(ready, task, recorded, (journal, final))
        if step.kind not in EVALUATED:
            return self._take_recorded(ready, task, recorded)
        result = perform(self._tools, task)
        check_output(result.output, self._tools.output_bytes)
        return replace(self._run_of(ready, result.status, result.output), state=result.state)

    def _run_of(self, ready: Ready, status: str, output: Any) -> StepRun:
        step = ready.step
        return StepRun(step.path, ready.iteration, step.id, step.kind, status, output=output, result_source="replayed")

    def _failed(self, ready: Ready, failed: StepFailed) -> StepRun:
        if failed.error["code"] in LOST_CODES:
            raise overloaded()
        return replace(self._run_of(ready, "failed", None), error=failed.error)

    def _take_recorded(self, ready: Ready, task: Task, recorded: RecordedRun | None) -> StepRun:
        """The recorded result of a step with side effects if its request is the same; else raises Diverged."""
        if recorded is None:
            return self._run_of(ready, "succeeded", None)
        if recorded.run.status == "skipped":
            raise ReplayDiverged(None, {"status": "skipped"}, {"status": "performed"})
        before, after = self._recorded_request(ready, recorded), self._current_request(task)
        if not is_same_json(before, after):
            raise ReplayDiverged(None, before, after)
        return as_recorded(recorded)

    def _recorded_request(self, ready: Ready, recorded: RecordedRun) -> dict[str, Any]:
        step = self._record.compiled.steps[ready.step.path]
        if step.kind == "wait" and {"for", "until"} & step.templates.keys():
            return {"until": (recorded.run.state or {}).get("until")}
        return {**step.settings, "input": recorded.run.input}

    def _current_request(self, task: Task) -> dict[str, Any]:
        if task.step.kind == "wait" and {"for", "until"} & task.filled.keys():
            return {"until": (perform(self._tools, task).state or {}).get("until")}
        return {**task.step.settings, "input": visible_input(task.filled)}

    # -- code

    def _run_code(
        self, ready: Ready, task: Task, recorded: RecordedRun | None, record: tuple[list[JournalEntry], FinalEntry]
    ) -> StepRun:
        error = (recorded.run.error or {}) if recorded else {}
        if recorded and error.get("code") in LOST_CODES:
            return as_recorded(recorded)
        is_cut_off = recorded is not None and recorded.is_failed
        host = ReplayHost(record[0], partial(self._answer, task), self._ends, is_cut_off=is_cut_off)
        try:
            result = self._run(task, host, record)
            if result.failure is None:
                host.check_all_repeated()
        except ReplayDiverged:
            if recorded and error.get("code") == "nondeterministic":
                return as_recorded(recorded)
            raise
        if result.failure is None:
            return self._run_of(ready, "succeeded", result.output)
        if clock.monotonic() >= self._ends:
            raise TimedOut(timeout_message())
        raise from_sandbox(result.failure)

    def _answer(self, task: Task, entry: JournalEntry) -> Any:
        """The recorded answer for the code; a secret only if the step still has the grant and it may be opened."""
        vault = vault_of(self._tools, task)
        if entry.method == SECRET and entry.ok and not (self._opens_secrets and entry.args[0] in vault.granted):
            return NOT_GRANTED
        return replay_answer(vault, entry)

    def _run(self, task: Task, host: ReplayHost, record: tuple[list[JournalEntry], FinalEntry]) -> Outcome:
        """Runs the code as `steps.code` does, with the recorded seed and clock."""
        (journal, final), tools = record, self._tools
        left_ms = int((self._ends - clock.monotonic()) * 1000)
        if left_ms <= 0:
            raise TimedOut(timeout_message())
        wall = min(task.wall_ms(tools.default_time_ms), left_ms)
        seed = seed_of(tools, task) if final.seed is None else final.seed
        return tools.pool.run(
            task.compiled.programs[task.step.path],
            task.input,
            host,
            api=facts_of(task),
            limits=limits_of(tools, task, wall),
            entropy=Entropy(seed, (*recorded_clock(journal), *final.clock)),
        )


def overloaded() -> Overloaded:
    return Overloaded("the sandbox has no capacity for the replay right now; try again in a moment", headers={"Retry-After": "5"})


def as_recorded(recorded: RecordedRun) -> StepRun:
    """The recorded run, as a finished one."""
    status = recorded.run.status if recorded.run.status in FINISHED else "failed"
    return replace(recorded.run, status=status, result_source="replayed")


def compare(report: StepReplay, recorded: StepRun, replayed: StepRun) -> None:
    """Stores in the report how the replayed run differs from the recorded one."""
    if replayed.status == "running" or (recorded.state is not None and recorded.kind in BLOCK_KINDS):
        if not is_same_json(_initial_state(recorded), _initial_state(replayed)):
            report.result, report.divergence = "diverged", Divergence(None, _decision(recorded), _decision(replayed))
        return
    before, after = _result(recorded), _result(replayed)
    if is_same_json(before, after):
        return
    is_other = "skipped" in (recorded.status, replayed.status)
    report.result, report.divergence = ("diverged" if is_other else "output_differs"), Divergence(None, before, after)
    report.recorded_output, report.replayed_output = recorded.output, replayed.output
    report.recorded_error, report.error = recorded.error, replayed.error
    report.changes = list_changes(recorded.output, replayed.output)


def _initial_state(run: StepRun) -> dict[str, Any] | None:
    """The initial decision of a step with inner steps, without the errors of its items, which are added later."""
    return None if run.state is None else {name: value for name, value in run.state.items() if name != "errors"}


def _decision(run: StepRun) -> dict[str, Any]:
    return _initial_state(run) or _result(run)


def _result(run: StepRun) -> dict[str, Any]:
    """The part of a finished run that is compared: its output, its error, or that it was skipped or cancelled."""
    if run.status in ("skipped", "cancelled"):
        return {"status": run.status}
    if run.status == "failed":
        return {"error": {name: (run.error or {}).get(name) for name in ("code", "failure_class", "message")}}
    return {"output": run.output}
