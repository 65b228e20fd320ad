"""One step of a dry run: what only computes is performed, a mock or a stand-in answers for what reaches outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError, TimedOut
from appliance.processes.definitions.nodes import BLOCK_KINDS, Step
from appliance.processes.engine.attempts import shown_input
from appliance.processes.engine.decide import Ready, StepRun
from appliance.processes.engine.evaluation import fill, is_true
from appliance.processes.engine.failing import LOST_CODES, StepFailed, check_output, from_coded, from_sandbox, make_error
from appliance.processes.engine.job import Job
from appliance.processes.engine.store import Claim
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.engine.waits import CHILD, Waits
from appliance.processes.files.naming import READ_FILES, file_method
from appliance.processes.host.agent_runs import RUN, WantedRun
from appliance.processes.host.journal import ACTION
from appliance.processes.host.model_calls import GENERATE
from appliance.processes.host.reached import ActionCall
from appliance.processes.steps import CONCLUSIONS, asking, perform
from appliance.processes.steps.code import facts_of, limits_of, seed_of
from appliance.processes.steps.llm import question_of
from appliance.sandbox import Entropy, LogLine

from .dry_run_calls import HUMAN, DryCall, DryCalls
from .dry_run_host import DryHost, out_of_time
from .replay_steps import no_room

COMPUTED = frozenset({"rule", "stop", *BLOCK_KINDS})


@dataclass
class StepDryRun:
    """One step run of a dry run, with its calls and what it logged.

    `run.result_source` is `executed` or, where something else stands for what the step would have come to, `mocked`.
    """

    run: StepRun
    calls: list[DryCall] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)


class _Reached:
    """DataPool, actions and children of one declarative step; a fault ends the step."""

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
        raise AssertionError("a step has its action performed")


class DrySteps:
    """Performs the steps of `job` (an execution in memory only) until `ends` (monotonic)."""

    def __init__(self, tools: Tools, job: Job, calls: DryCalls, pinned: Mapping[str, Any], ends: float) -> None:
        self._tools, self._job, self._calls, self._pinned, self._ends = tools, job, calls, pinned, ends

    def perform(self, ready: Ready) -> StepDryRun:
        """The step run, with what it asked for."""
        step, began = ready.step, clock.now_ms()
        first = len(self._calls.made)
        told = StepDryRun(StepRun(step.path, ready.iteration, step.id, step.kind, "running", started_at=began))
        try:
            try:
                result = self._perform(ready, told)
                check_output(result.output, self._tools.output_bytes)
            except ApplianceError as error:
                if isinstance(error, TimedOut) and clock.monotonic() >= self._ends:
                    raise
                raise from_coded(error) from error
            told.run = replace(told.run, status=result.status, output=result.output, state=result.state)
        except StepFailed as failed:
            if failed.error["code"] in LOST_CODES:
                raise no_room() from failed
            error_object = {**failed.error, "step": step.id, "attempt": 1}
            told.run = replace(told.run, status="failed", error=error_object)
            told.logs = failed.logs
        told.calls = self._calls.made[first:]
        if told.run.status != "running":
            told.run.finished_at = clock.now_ms()
        return told

    def _perform(self, ready: Ready, told: StepDryRun) -> Result:
        step, now = ready.step, clock.now_ms()
        names = self._job.names(ready.iteration, step.path)
        if step.when is not None and not is_true(fill(self._tools.pool, {"when": step.when}, names, now)["when"]):
            return Result(status="skipped")
        stands_for = self._stand_in(step, names, now)
        if stands_for is not None:
            told.run.result_source = "mocked"
            return stands_for
        templates = {name: template for name, template in step.templates.items() if name != "expression"}
        filled = fill(self._tools.pool, templates, names, now)
        told.run.input = shown_input(filled)
        task = Task(
            step, ready.iteration, 1, self._job.claim, self._job.compiled, names, filled,
            filled.get("step_input", self._job.claim.input), now, max(1, self._left_ms()), lambda: False,
        )  # fmt: skip
        if step.kind == "code":
            return self._run_code(task, told)
        if step.kind in COMPUTED:
            return perform(self._tools, task)
        first = len(self._calls.made)
        result = self._reach(task)
        if any(call.answered_by != "live" for call in self._calls.made[first:]):
            told.run.result_source = "mocked"
        return result

    def _stand_in(self, step: Step, names: Mapping[str, Any], now: int) -> Result | None:
        """A mock of the test, else the step's own, else what was pinned of a step that reaches outside."""
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
        return min(self._job.left_ms(), int((self._ends - clock.monotonic()) * 1000))

    # -- what reaches outside

    def _reach(self, task: Task) -> Result:
        """Have the step look at what it is about to ask, and answer it here."""
        reached = _Reached(self._calls, task.step, task.iteration)
        children = self._calls.child_check(task.step)
        tools = replace(self._tools, data=reached, actions=reached, children=children)
        if task.step.kind in ("integration", "datapool"):
            result = perform(tools, task)
            return Result(output=result.in_commit()) if result.in_commit is not None else result
        if task.step.kind in ("file", "ocr"):
            return self._read_or_make(task, reached)
        if task.step.kind == "llm":
            return Result(output=reached.answer(GENERATE, [question_of(task)]))
        if task.step.kind == "agent":
            return self._run_agent(task, reached)
        if task.step.kind not in ("human", "process", "wait"):
            return Result(output=reached.answer(task.step.kind, [dict(task.filled)]))
        result = perform(tools, task)
        if result.settle is None:
            if result.next_run_at is not None:
                reached.answer("wait.until", [clock.rfc3339(result.next_run_at)])
            return Result(output=None)
        ok, value = self._calls.answer(task.step, task.iteration, *_asked(task))
        concluded = CONCLUSIONS.get(task.step.kind, asking.take_answer)(task, ok, value)
        if isinstance(concluded, StepFailed):
            raise concluded
        return concluded

    def _run_agent(self, task: Task, reached: _Reached) -> Result:
        """No agent runs in a test: what the run answers says a mock."""
        agent_id, given = task.step.settings["use"], task.filled.get("input", task.input)
        if not self._calls.mocks.has_call(task.step, RUN, [agent_id]):
            wanted = WantedRun(agent_id, given, task.run_key, task.step.id, task.grants)
            self._tools.agents.prepare(task.claim, wanted)
        return Result(output=reached.answer(RUN, [agent_id, given]))

    def _read_or_make(self, task: Task, reached: _Reached) -> Result:
        """What only reads a document does; a document that would be made, or rows that would be stored, are noted."""
        method, args, step = file_method(task.step), [dict(task.filled["arguments"])], task.step
        if method not in READ_FILES or self._calls.mocks.has_call(step, method, args):
            return Result(output=reached.answer(method, args))
        self._calls.require("documents.read", method)
        result = perform(self._tools, task)
        self._calls.note_read(step, task.iteration, method, args, result.output)
        return result

    # -- code

    def _run_code(self, task: Task, told: StepDryRun) -> Result:
        tools, claim = self._tools, task.claim
        checks = Waits(claim, task.run_key, task.step.id, task.grants, self._calls.child_check(task.step), tools.longest_wait_ms)
        host = DryHost(self._calls, task, checks, partial(tools.submit_io, task.claim.scope.tenant_id), self._ends)
        wall = task.wall_ms(tools.default_time_ms)
        outcome = tools.pool.run(
            task.compiled.programs[task.step.path], task.input, host, api=facts_of(task), limits=limits_of(tools, task, wall),
            entropy=Entropy(seed_of(tools, task), ()),
        )  # fmt: skip
        if outcome.failure is not None:
            if clock.monotonic() >= self._ends:
                raise TimedOut(out_of_time())
            raise StepFailed(from_sandbox(outcome.failure).error, outcome.logs)
        told.logs = list(outcome.logs)
        return Result(output=outcome.output)


def failure_of(fault: Mapping[str, Any]) -> StepFailed:
    """The fault of a call as its step's failure."""
    more = {"details": fault.get("details")}
    failure_class = fault.get("failure_class", "system")
    return StepFailed(make_error(fault["code"], failure_class, fault["message"], retryable=bool(fault.get("retryable")), **more))


def _asked(task: Task) -> tuple[str, list[Any]]:
    """The call by which a step that waits asks."""
    settings, filled = task.step.settings, task.filled
    if task.step.kind == "human":
        return HUMAN, [filled["arguments"]]
    if task.step.kind == "process":
        return CHILD, [settings["use"], filled.get("input", task.input), {"wait": settings["wait"]}]
    return "events.wait", [filled["arguments"].get("event"), {"timeout": filled["arguments"].get("timeout")}]
