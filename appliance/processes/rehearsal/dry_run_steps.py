"""Performs one step of a dry run: pure steps run, those with side effects are answered by mocks or defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError, TimedOut
from appliance.processes.definitions.nodes import BLOCK_KINDS, Step
from appliance.processes.engine.attempts import visible_input
from appliance.processes.engine.decide import Ready, StepRun
from appliance.processes.engine.evaluation import fill, is_true
from appliance.processes.engine.failures import LOST_CODES, StepFailed, check_output, from_appliance_error, from_sandbox, make_error
from appliance.processes.engine.job import Job
from appliance.processes.engine.store import Claim
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.engine.waits import CHILD, Waits
from appliance.processes.files.naming import READ_FILES, file_method
from appliance.processes.host.agent_runs import RUN, AgentRunRequest
from appliance.processes.host.journal import ACTION
from appliance.processes.host.model_calls import GENERATE
from appliance.processes.host.protocols import ActionCall
from appliance.processes.steps import CONCLUSIONS, pending_answers, perform
from appliance.processes.steps.code import facts_of, limits_of, seed_of
from appliance.processes.steps.llm import prompt_of
from appliance.sandbox import Entropy, LogLine

from .dry_run_calls import HUMAN, DryCall, DryCalls
from .dry_run_host import DryHost, timeout_message
from .replay_steps import overloaded

COMPUTED = frozenset({"rule", "stop", *BLOCK_KINDS})


@dataclass
class StepDryRun:
    """One step run of a dry run, with its calls and its log lines.

    `run.result_source` is `executed`, or `mocked` when a mock or default replaced the step's result.
    """

    run: StepRun
    calls: list[DryCall] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)


class _DryTargets:
    """DataPool and actions of one declarative step, answered by `DryCalls`; an error ends the step."""

    def __init__(self, calls: DryCalls, step: Step, iteration: str) -> None:
        self._calls, self._step, self._iteration = calls, step, iteration

    def answer(self, method: str, args: list[Any], seconds: float = 0.0) -> Any:
        ok, value = self._calls.answer(self._step, self._iteration, method, args, seconds)
        if not ok:
            raise failure_of(value)
        return value

    def perform(self, claim: Claim, method: str, args: list[Any]) -> Any:
        return self.answer(method, args)

    def prepare(self, claim: Claim, method: str, args: list[Any]) -> Callable[[], Any]:
        return partial(self.answer, method, args)

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        return self.answer(ACTION, [call.integration, call.action, call.input], seconds)

    def preview(self, claim: Claim, call: ActionCall) -> str:
        raise AssertionError("steps execute actions, they never preview them")


class DrySteps:
    """Performs the steps of `job`, an execution in memory only, until the deadline `ends` (monotonic seconds)."""

    def __init__(self, tools: StepServices, job: Job, calls: DryCalls, pinned: Mapping[str, Any], ends: float) -> None:
        self._tools, self._job, self._calls, self._pinned, self._ends = tools, job, calls, pinned, ends

    def perform(self, ready: Ready) -> StepDryRun:
        """Performs a step; the result has its calls and log lines."""
        step, started = ready.step, clock.now_ms()
        first = len(self._calls.calls)
        report = StepDryRun(StepRun(step.path, ready.iteration, step.id, step.kind, "running", started_at=started))
        try:
            try:
                result = self._perform(ready, report)
                check_output(result.output, self._tools.output_bytes)
            except ApplianceError as error:
                if isinstance(error, TimedOut) and clock.monotonic() >= self._ends:
                    raise
                raise from_appliance_error(error) from error
            report.run = replace(report.run, status=result.status, output=result.output, state=result.state)
        except StepFailed as failed:
            if failed.error["code"] in LOST_CODES:
                raise overloaded() from failed
            error_object = {**failed.error, "step": step.id, "attempt": 1}
            report.run = replace(report.run, status="failed", error=error_object)
            report.logs = failed.logs
        report.calls = self._calls.calls[first:]
        if report.run.status != "running":
            report.run.finished_at = clock.now_ms()
        return report

    def _perform(self, ready: Ready, report: StepDryRun) -> Result:
        step, now = ready.step, clock.now_ms()
        names = self._job.names(ready.iteration, step.path)
        if step.when is not None and not is_true(fill(self._tools.pool, {"when": step.when}, names, now)["when"]):
            return Result(status="skipped")
        replacement = self._find_replacement(step, names, now)
        if replacement is not None:
            report.run.result_source = "mocked"
            return replacement
        templates = {name: template for name, template in step.templates.items() if name != "expression"}
        filled = fill(self._tools.pool, templates, names, now)
        report.run.input = visible_input(filled)
        task = Task(
            step=step, iteration=ready.iteration, attempt=1, claim=self._job.claim, compiled=self._job.compiled, names=names,
            filled=filled, input=filled.get("step_input", self._job.claim.input), now=now, time_ms=max(1, self._left_ms()),
            is_cancelled=lambda: False,
        )  # fmt: skip
        if step.kind == "code":
            return self._run_code(task, report)
        if step.kind in COMPUTED:
            return perform(self._tools, task)
        first = len(self._calls.calls)
        result = self._perform_with_targets(task)
        if any(call.answered_by != "live" for call in self._calls.calls[first:]):
            report.run.result_source = "mocked"
        return result

    def _find_replacement(self, step: Step, names: Mapping[str, Any], now: int) -> Result | None:
        """A replacement for the step's result: the test's mock, the step's own mock, or a pinned output; else None."""
        mocked = self._calls.mocks.answer_step(step)
        if mocked is not None:
            ok, value = mocked
            if not ok:
                raise failure_of(value)
            return Result(output=value)
        if step.mock is not None:
            return Result(output=fill(self._tools.pool, {"mock": step.mock}, names, now)["mock"])
        if step.id in self._pinned and step.kind not in COMPUTED | {"code"}:
            return Result(output=self._pinned[step.id])
        return None

    def _left_ms(self) -> int:
        return min(self._job.remaining_ms(), int((self._ends - clock.monotonic()) * 1000))

    # -- steps with side effects

    def _perform_with_targets(self, task: Task) -> Result:
        """Lets the step validate and make its call, which is answered here."""
        targets = _DryTargets(self._calls, task.step, task.iteration)
        children = self._calls.child_check(task.step)
        tools = replace(self._tools, data=targets, actions=targets, children=children)
        if task.step.kind in ("integration", "datapool"):
            result = perform(tools, task)
            return Result(output=result.in_commit()) if result.in_commit is not None else result
        if task.step.kind in ("file", "ocr"):
            return self._perform_file_step(task, targets)
        if task.step.kind == "llm":
            return Result(output=targets.answer(GENERATE, [prompt_of(task)]))
        if task.step.kind == "agent":
            return self._run_agent(task, targets)
        if task.step.kind not in ("human", "process", "wait"):
            return Result(output=targets.answer(task.step.kind, [dict(task.filled)]))
        result = perform(tools, task)
        if result.settle is None:
            if result.next_run_at is not None:
                targets.answer("wait.until", [clock.rfc3339(result.next_run_at)])
            return Result(output=None)
        ok, value = self._calls.answer(task.step, task.iteration, *_waiting_call(task))
        concluded = CONCLUSIONS.get(task.step.kind, pending_answers.take_answer)(task, ok, value)
        if isinstance(concluded, StepFailed):
            raise concluded
        return concluded

    def _run_agent(self, task: Task, targets: _DryTargets) -> Result:
        """Validates an agent run, which never starts in a test; its answer comes from a mock."""
        agent_id, payload = task.step.settings["use"], task.filled.get("input", task.input)
        if not self._calls.mocks.has_call(task.step, RUN, [agent_id]):
            request = AgentRunRequest(agent_id, payload, task.run_key, task.step.id, task.grants)
            self._tools.agents.prepare(task.claim, request)
        return Result(output=targets.answer(RUN, [agent_id, payload]))

    def _perform_file_step(self, task: Task, targets: _DryTargets) -> Result:
        """Reads documents for real; the creation of documents or rows is only recorded."""
        method, args, step = file_method(task.step), [dict(task.filled["arguments"])], task.step
        if method not in READ_FILES or self._calls.mocks.has_call(step, method, args):
            return Result(output=targets.answer(method, args))
        self._calls.require_scope("documents.read", method)
        result = perform(self._tools, task)
        self._calls.note_read(step, task.iteration, method, args, result.output)
        return result

    # -- code

    def _run_code(self, task: Task, report: StepDryRun) -> Result:
        tools, claim = self._tools, task.claim
        checks = Waits(claim, task.run_key, task.step.id, task.grants, self._calls.child_check(task.step), tools.max_wait_ms)
        host = DryHost(self._calls, task, checks, partial(tools.submit_io, task.claim.scope.tenant_id), self._ends)
        wall = task.wall_ms(tools.default_time_ms)
        result = tools.pool.run(
            task.compiled.programs[task.step.path], task.input, host, api=facts_of(task), limits=limits_of(tools, task, wall),
            entropy=Entropy(seed_of(tools, task), ()),
        )  # fmt: skip
        if result.failure is not None:
            if clock.monotonic() >= self._ends:
                raise TimedOut(timeout_message())
            raise StepFailed(from_sandbox(result.failure).error, result.logs)
        report.logs = list(result.logs)
        return Result(output=result.output)


def failure_of(error: Mapping[str, Any]) -> StepFailed:
    """The error object of a call as the failure of its step."""
    details = {"details": error.get("details")}
    failure_class = error.get("failure_class", "system")
    return StepFailed(make_error(error["code"], failure_class, error["message"], retryable=bool(error.get("retryable")), **details))


def _waiting_call(task: Task) -> tuple[str, list[Any]]:
    """The call that a waiting step makes."""
    settings, filled = task.step.settings, task.filled
    if task.step.kind == "human":
        return HUMAN, [filled["arguments"]]
    if task.step.kind == "process":
        return CHILD, [settings["use"], filled.get("input", task.input), {"wait": settings["wait"]}]
    return "events.wait", [filled["arguments"].get("event"), {"timeout": filled["arguments"].get("timeout")}]
