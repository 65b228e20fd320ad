"""What happens next in an execution: a pure function of the definition, the step runs so far and the time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .nodes import Definition, Step

Key = tuple[str, str]
FINISHED = frozenset({"succeeded", "skipped"})
_SAME_ITERATION = ("branch", "parallel")  # the steps in them run once, where they stand


@dataclass
class StepRun:
    """One step run as the engine sees it.  `state` is what a step keeps while it is open (items, the branch taken)."""

    path: str
    iteration: str
    step: str
    kind: str
    status: str
    attempt: int = 1
    state: Any = None
    output: Any = None
    error: Mapping[str, Any] | None = None
    next_run_at: int | None = None
    result_source: str = "executed"
    input: Any = None
    started_at: int | None = None
    finished_at: int | None = None

    @property
    def is_suspended(self) -> bool:
        """Whether it has asked something, and waits for the answer."""
        return bool(self.state) and bool(self.state.get("suspended"))


@dataclass(frozen=True)
class Ready:
    """A step to perform now; `run` is its open run when it was begun before."""

    step: Step
    iteration: str
    run: StepRun | None


@dataclass(frozen=True)
class Close:
    """A branch, parallel, for_each or wait that is complete; `output` is its result, `collect` is evaluated per iteration."""

    step: Step
    iteration: str
    run: StepRun
    output: Any


@dataclass
class Decision:
    """As of `now`: `ready` and `close` are to be performed; when both are empty, `done`, `failed` or `wake_at` says the rest.

    `stopped`: it is done because this step says so, whatever else is open; `output` is that step's.
    """

    now: int
    ready: list[Ready] = field(default_factory=list)
    close: list[Close] = field(default_factory=list)
    done: bool = False
    stopped: StepRun | None = None
    output: Any = None
    failed: StepRun | None = None
    wake_at: int | None = None
    wake_reason: Literal["timer", "retry"] = "timer"


class History:
    """The step runs of one execution, indexed for the engine; finished iterations are remembered.

    `stopped` is the step run that has ended the execution.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.runs: dict[Key, StepRun] = {}
        self._outputs: dict[str, dict[str, Any]] = {}
        self._items: dict[Key, _Items] = {}
        self.stopped: StepRun | None = None
        self._branches = {step.path: _inner_ids(step) for step in definition.all_steps() if step.kind in _SAME_ITERATION}

    def put(self, run: StepRun) -> None:
        """Note a step run, new or changed.  Steps of a branch that were not reached have the output null."""
        self.runs[run.path, run.iteration] = run
        if run.kind == "stop" and run.status == "succeeded":
            self.stopped = self.stopped or run
        if run.status in FINISHED:
            outputs = self._outputs.setdefault(run.iteration, {})
            outputs[run.step] = run.output
            for step_id in self._branches.get(run.path, ()):
                outputs.setdefault(step_id, None)

    def outputs_for(self, iteration: str) -> dict[str, Any]:
        """`steps` as an expression in this iteration sees it: its own steps and those of the enclosing ones."""
        seen = dict(self._outputs.get("", {}))
        parts = iteration.split(".") if iteration else []
        for depth in range(1, len(parts) + 1):
            seen |= self._outputs.get(".".join(parts[:depth]), {})
        return seen

    def decide(self, now: int) -> Decision:
        """What to do next."""
        decision = Decision(now)
        if self.stopped is not None:
            decision.done, decision.stopped, decision.output = True, self.stopped, self.stopped.output
            return decision
        finished, output = self._steps(self.definition.steps, "", decision)
        if finished:
            decision.done, decision.output = True, output
        return decision

    def _steps(self, steps: tuple[Step, ...], iteration: str, decision: Decision) -> tuple[bool, Any]:
        """(finished, output of the last step); stops at the first open step."""
        output: Any = None
        for step in steps:
            run = self.runs.get((step.path, iteration))
            if run is not None and run.status in FINISHED:
                output = run.output
                continue
            self._open(step, iteration, run, decision)
            return False, None
        return True, output

    def _open(self, step: Step, iteration: str, run: StepRun | None, decision: Decision) -> None:
        """Note what an unfinished step needs."""
        if run is None or run.status == "pending":
            decision.ready.append(Ready(step, iteration, run))
        elif run.status in ("failed", "cancelled"):
            decision.failed = decision.failed or run
        elif run.status in ("retrying", "waiting"):
            self._timer(step, iteration, run, decision)
        elif step.kind == "branch":
            block = step.blocks[run.state["taken"]]
            finished, output = self._steps(block.steps, iteration, decision)
            if finished:
                decision.close.append(Close(step, iteration, run, output))
        elif step.kind == "parallel":
            ends = {block.name: self._steps(block.steps, iteration, decision) for block in step.blocks}
            if all(finished for finished, _ in ends.values()):
                decision.close.append(Close(step, iteration, run, {name: output for name, (_, output) in ends.items()}))
        elif step.kind == "for_each":
            self._for_each(step, iteration, run, decision)
        else:
            decision.ready.append(Ready(step, iteration, run))

    def _timer(self, step: Step, iteration: str, run: StepRun, decision: Decision) -> None:
        if run.next_run_at is not None and run.next_run_at > decision.now:
            if decision.wake_at is None or run.next_run_at < decision.wake_at:
                decision.wake_at = run.next_run_at
                decision.wake_reason = "retry" if run.status == "retrying" else "timer"
        elif run.status == "waiting" and run.kind == "wait" and not run.is_suspended:
            decision.close.append(Close(step, iteration, run, run.output))
        else:
            decision.ready.append(Ready(step, iteration, run))

    def _for_each(self, step: Step, iteration: str, run: StepRun, decision: Decision) -> None:
        """Look at the open iterations only, and begin further ones while there is room."""
        items = self._items.setdefault((step.path, iteration), _Items())
        count = len(run.state["items"])
        still_open = [index for index in items.open if self._is_open(step, iteration, index, items, decision)]
        while items.next < count and len(still_open) < step.settings["concurrency"] and decision.failed is None:
            if self._is_open(step, iteration, items.next, items, decision):
                still_open.append(items.next)
            items.next += 1
        items.open = still_open
        if len(items.outputs) == count:
            decision.close.append(Close(step, iteration, run, [items.outputs[i] for i in range(count)]))

    def _is_open(self, step: Step, iteration: str, index: int, items: "_Items", decision: Decision) -> bool:
        """Whether this iteration goes on; the output of a finished one is kept."""
        inner = f"{iteration}.{index}" if iteration else str(index)
        finished, output = self._steps(step.blocks[0].steps, inner, decision)
        if finished:
            items.outputs[index] = output
        return not finished


@dataclass
class _Items:
    """How far a for_each is: iterations begun and not finished, the next to begin, outputs of finished ones."""

    open: list[int] = field(default_factory=list)
    next: int = 0
    outputs: dict[int, Any] = field(default_factory=dict)


def _inner_ids(step: Step) -> list[str]:
    """The ids of the steps of a branch or parallel that run in its own iteration."""
    found: list[str] = []
    for block in step.blocks:
        for inner in block.steps:
            found.append(inner.id)
            if inner.kind in _SAME_ITERATION:
                found += _inner_ids(inner)
    return found
