"""What happens next in an execution: a pure function of the definition, the step runs so far and the time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .definition import Block, Definition, Step

Key = tuple[str, str]
FINISHED = frozenset({"succeeded", "skipped"})


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


@dataclass(frozen=True)
class Ready:
    """A step to perform now; `run` is its open run when it was begun before."""

    step: Step
    iteration: str
    run: StepRun | None


@dataclass(frozen=True)
class Close:
    """A branch, for_each or wait that is complete; `output` is its result, `collect` is evaluated per iteration."""

    step: Step
    iteration: str
    run: StepRun
    output: Any


@dataclass
class Decision:
    """`ready` and `close` are to be performed; when both are empty, `done`, `failed` or `wake_at` says the rest."""

    ready: list[Ready] = field(default_factory=list)
    close: list[Close] = field(default_factory=list)
    done: bool = False
    output: Any = None
    failed: StepRun | None = None
    wake_at: int | None = None
    wake_reason: Literal["timer", "retry"] = "timer"


class History:
    """The step runs of one execution, indexed for the engine; finished iterations are remembered."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.runs: dict[Key, StepRun] = {}
        self._outputs: dict[str, dict[str, Any]] = {}
        self._first_open: dict[Key, int] = {}
        self._collected: dict[Key, dict[int, Any]] = {}

    def put(self, run: StepRun) -> None:
        """Note a step run, new or changed."""
        self.runs[run.path, run.iteration] = run
        if run.status in FINISHED:
            self._outputs.setdefault(run.iteration, {})[run.step] = run.output

    def outputs_for(self, iteration: str) -> dict[str, Any]:
        """`steps` as an expression in this iteration sees it: its own steps and those of the enclosing ones."""
        seen = dict(self._outputs.get("", {}))
        parts = iteration.split(".") if iteration else []
        for depth in range(1, len(parts) + 1):
            seen |= self._outputs.get(".".join(parts[:depth]), {})
        return seen

    def decide(self, now: int) -> Decision:
        """What to do next."""
        decision = Decision()
        finished, output = self._steps(self.definition.steps, "", now, decision)
        if finished:
            decision.done, decision.output = True, output
        return decision

    def _steps(self, steps: tuple[Step, ...], iteration: str, now: int, decision: Decision) -> tuple[bool, Any]:
        """(finished, output of the last step); stops at the first open step."""
        output: Any = None
        for step in steps:
            run = self.runs.get((step.path, iteration))
            if run is not None and run.status in FINISHED:
                output = run.output
                continue
            self._open(step, iteration, run, now, decision)
            return False, None
        return True, output

    def _open(self, step: Step, iteration: str, run: StepRun | None, now: int, decision: Decision) -> None:
        """Note what an unfinished step needs."""
        if run is None or run.status == "pending":
            decision.ready.append(Ready(step, iteration, run))
        elif run.status in ("failed", "cancelled"):
            decision.failed = decision.failed or run
        elif run.status in ("retrying", "waiting"):
            self._timer(step, iteration, run, now, decision)
        elif step.kind == "branch":
            block = step.blocks[run.state["taken"]]
            finished, output = self._steps(block.steps, iteration, now, decision)
            if finished:
                decision.close.append(Close(step, iteration, run, output))
        elif step.kind == "for_each":
            self._for_each(step, iteration, run, now, decision)
        else:
            decision.ready.append(Ready(step, iteration, run))

    def _timer(self, step: Step, iteration: str, run: StepRun, now: int, decision: Decision) -> None:
        if run.next_run_at is not None and run.next_run_at > now:
            if decision.wake_at is None or run.next_run_at < decision.wake_at:
                decision.wake_at = run.next_run_at
                decision.wake_reason = "retry" if run.status == "retrying" else "timer"
        elif run.status == "waiting":
            decision.close.append(Close(step, iteration, run, run.output))
        else:
            decision.ready.append(Ready(step, iteration, run))

    def _for_each(self, step: Step, iteration: str, run: StepRun, now: int, decision: Decision) -> None:
        key = (step.path, iteration)
        count = len(run.state["items"])
        collected = self._collected.setdefault(key, {})
        index = self._first_open.get(key, 0)
        under_way = 0
        while index < count and under_way < step.settings["concurrency"]:
            if index not in collected:
                finished, output = self._iteration(step.blocks[0], iteration, index, now, decision)
                if decision.failed is not None:
                    return
                if finished:
                    collected[index] = output
                else:
                    under_way += 1
            if index in collected and self._first_open.get(key, 0) == index:
                self._first_open[key] = index + 1
            index += 1
        if len(collected) == count:
            decision.close.append(Close(step, iteration, run, [collected[i] for i in range(count)]))

    def _iteration(self, block: Block, outer: str, index: int, now: int, decision: Decision) -> tuple[bool, Any]:
        return self._steps(block.steps, f"{outer}.{index}" if outer else str(index), now, decision)
