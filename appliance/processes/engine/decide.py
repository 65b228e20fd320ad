"""Decides what happens next in an execution: a pure function of the definition, the step runs so far and the time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from appliance.processes.definitions.nodes import Block, Definition, Step

Key = tuple[str, str]
FINISHED = frozenset({"succeeded", "skipped"})
_OPEN = frozenset({"running", "waiting", "retrying", "pending"})
_SAME_ITERATION = ("branch", "parallel")  # their steps run once, in the iteration of the block itself


@dataclass
class StepRun:
    """One step run as the engine sees it.  `state` is what an open step stores (items, the branch taken).

    `undo_order` numbers the undoable runs in the order in which they ended.  `measured_by`: the boot id of the machine that
    measures the duration until `next_run_at`; None if that is a point in time.
    """

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
    undo_order: int | None = None
    measured_by: str | None = None

    @property
    def is_suspended(self) -> bool:
        """Whether the step waits for the answer to a call."""
        return bool(self.state) and bool(self.state.get("suspended"))


@dataclass(frozen=True)
class Ready:
    """A step to perform now; `run` is its open run if it was started before."""

    step: Step
    iteration: str
    run: StepRun | None


@dataclass(frozen=True)
class Close:
    """A block or wait to finish; `output` is its result, `collect` is evaluated per iteration.

    `errors`: the errors of failed iterations by index, for a for_each that continues after them.  `error`: one of its steps
    failed and the process continues after the block.
    """

    step: Step
    iteration: str
    run: StepRun
    output: Any
    errors: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None


@dataclass
class Decision:
    """What to do as of `now`: perform `ready`, `close` and `give_up`; if all are empty, `done`, `failed` or `wake_at` tells
    how it continues.

    `stopped`: the step that ended the execution early, with its `output`, whatever else is open.  `give_up`: open step runs
    to finish because a step beside them failed while the process continues.
    """

    now: int
    ready: list[Ready] = field(default_factory=list)
    close: list[Close] = field(default_factory=list)
    give_up: list[StepRun] = field(default_factory=list)
    done: bool = False
    stopped: StepRun | None = None
    output: Any = None
    failed: StepRun | None = None
    wake_at: int | None = None
    wake_reason: Literal["timer", "retry"] = "timer"

    @property
    def has_work(self) -> bool:
        """Whether there are steps to perform or finish."""
        return bool(self.ready or self.close or self.give_up)

    def merge(self, part: "Decision") -> None:
        """Merge the decision for a part of the process."""
        self.ready += part.ready
        self.close += part.close
        self.give_up += part.give_up
        if part.wake_at is not None:
            self.wake(part.wake_at, part.wake_reason)

    def wake(self, at: int, reason: Literal["timer", "retry"]) -> None:
        """Wake the execution at `at`, unless it wakes earlier anyway."""
        if self.wake_at is None or at < self.wake_at:
            self.wake_at, self.wake_reason = at, reason


class _Progress(NamedTuple):
    """The progress of a list of steps: finished with an output, open, or failed with this run."""

    finished: bool
    output: Any = None
    failed: StepRun | None = None


@dataclass(frozen=True)
class Compensation:
    """A step run to be undone by `steps`, and the progress of that: `finished`, or the run it `failed` with."""

    run: StepRun
    steps: tuple[Step, ...]
    finished: bool
    failed: StepRun | None


class History:
    """The step runs of one execution, indexed for the engine; finished iterations are not visited again.

    `stopped` is the step run that ended the execution early.  `after` is the final status once it is decided: from then on
    only the steps that undo others run, and after a failure those of `on_failure`.
    """

    def __init__(self, definition: Definition, after: str | None = None) -> None:
        self.definition = definition
        self.final_status = after
        self._pending_compensations: list[tuple[tuple[Step, ...], str]] | None = None
        self.runs: dict[Key, StepRun] = {}
        self._outputs: dict[str, dict[str, Any]] = {}
        self._errors: dict[str, dict[str, Any]] = {}
        self._error_keeping = {step.path: step for step in definition.all_steps() if step.keeps_errors}
        self._items: dict[Key, _Items] = {}
        self.stopped: StepRun | None = None
        self._branches = {step.path: _inner_ids(step) for step in definition.all_steps() if step.kind in _SAME_ITERATION}

    def put(self, run: StepRun) -> None:
        """Add or replace a step run.  Steps of options that were not taken get the output null."""
        self.runs[run.path, run.iteration] = run
        if run.kind == "stop" and run.status == "succeeded":
            self.stopped = self.stopped or run
        step = self._error_keeping.get(run.path)
        if run.status in FINISHED or (step is not None and is_over(step, run)):
            outputs = self._outputs.setdefault(run.iteration, {})
            outputs[run.step] = run.output
            if step is not None:
                self._errors.setdefault(run.iteration, {})[run.step] = _error_value(run)
            for step_id in self._branches.get(run.path, ()):
                outputs.setdefault(step_id, None)

    def outputs_for(self, iteration: str) -> dict[str, Any]:
        """`steps` for an expression in this iteration: the outputs of this iteration and of the enclosing ones."""
        return _merge_scopes(self._outputs, iteration)

    def errors_for(self, iteration: str) -> dict[str, Any]:
        """`errors` in the same way, for steps that may fail without ending the process; null for a successful one."""
        return _merge_scopes(self._errors, iteration)

    def decide(self, now: int) -> Decision:
        """What to do next, as of `now` (milliseconds)."""
        decision = Decision(now)
        if self.final_status is not None:
            self._decide_compensation(decision)
            return decision
        if self.stopped is not None:
            decision.done, decision.stopped, decision.output = True, self.stopped, self.stopped.output
            return decision
        progress = self._steps(self.definition.steps, "", decision)
        decision.done, decision.output, decision.failed = progress
        return decision

    def compensations(self) -> list[Compensation]:
        """The step runs to undo, last finished first, with the progress of each."""
        steps = {step.path: (index, step) for index, step in enumerate(self.definition.all_steps()) if step.undo}
        runs = [run for run in self.runs.values() if run.undo_order is not None and run.path in steps and run.status == "succeeded"]
        runs.sort(key=lambda run: (run.undo_order or 0, steps[run.path][0], run.iteration), reverse=True)
        compensations = []
        for run in runs:
            undo = steps[run.path][1].undo
            finished, _, failed = self._steps(undo, run.iteration, Decision(0))
            compensations.append(Compensation(run, undo, finished, failed))
        return compensations

    def _decide_compensation(self, decision: Decision) -> None:
        """Undo one step after the other; a failed undo does not prevent the others."""
        if self._pending_compensations is None:
            self._pending_compensations = [(each.steps, each.run.iteration) for each in self.compensations()]
            if self.final_status != "cancelled":
                self._pending_compensations.append((self.definition.on_failure.steps, ""))
        while self._pending_compensations:
            steps, iteration = self._pending_compensations[0]
            part = Decision(decision.now)
            finished, _, failed = self._steps(steps, iteration, part)
            if failed is not None:
                decision.give_up += self._close_open_runs((Block(steps),), iteration, failed)
            elif not finished:
                decision.merge(part)
                return
            if decision.give_up:
                return
            del self._pending_compensations[0]
        decision.done = True

    def _steps(self, steps: tuple[Step, ...], iteration: str, decision: Decision) -> _Progress:
        """Follow the steps in order up to the first open one, and add what that needs to the decision."""
        output: Any = None
        for step in steps:
            run = self.runs.get((step.path, iteration))
            if run is not None and is_over(step, run):
                output = run.output
                continue
            return _Progress(False, failed=self._open(step, iteration, run, decision))
        return _Progress(True, output)

    def _open(self, step: Step, iteration: str, run: StepRun | None, decision: Decision) -> StepRun | None:
        """Add what an unfinished step needs to the decision; answers the run it failed with, if any."""
        if run is None or run.status == "pending":
            decision.ready.append(Ready(step, iteration, run))
        elif run.status in ("failed", "cancelled"):
            return run
        elif run.status in ("retrying", "waiting"):
            self._timer(step, iteration, run, decision)
        elif not step.blocks:
            decision.ready.append(Ready(step, iteration, run))
        elif not step.continue_on_error:
            return self._block(step, iteration, run, decision)
        else:
            part = Decision(decision.now)
            failed = self._block(step, iteration, run, part)
            if failed is None:
                decision.merge(part)
            elif not step.continues_after(failed.error):
                return failed
            else:
                decision.give_up += self._close_open_runs(step.blocks, iteration, failed)
                decision.close.append(Close(step, iteration, run, None, error=failed.error))
        return None

    def _block(self, step: Step, iteration: str, run: StepRun, decision: Decision) -> StepRun | None:
        """The same for a step that contains steps."""
        if step.kind == "for_each":
            return self._for_each(step, iteration, run, decision)
        if step.kind == "branch":
            progress = self._steps(step.blocks[run.state["taken"]].steps, iteration, decision)
            if progress.finished:
                decision.close.append(Close(step, iteration, run, progress.output))
            return progress.failed
        ends = {block.name: self._steps(block.steps, iteration, decision) for block in step.blocks}
        if all(reached.finished for reached in ends.values()):
            decision.close.append(Close(step, iteration, run, {name: reached.output for name, reached in ends.items()}))
        return _first_failed([reached.failed for reached in ends.values()])

    def _timer(self, step: Step, iteration: str, run: StepRun, decision: Decision) -> None:
        if run.next_run_at is not None and run.next_run_at > decision.now:
            decision.wake(run.next_run_at, "retry" if run.status == "retrying" else "timer")
        elif run.status == "waiting" and run.kind == "wait" and not run.is_suspended:
            decision.close.append(Close(step, iteration, run, run.output))
        else:
            decision.ready.append(Ready(step, iteration, run))

    def _for_each(self, step: Step, iteration: str, run: StepRun, decision: Decision) -> StepRun | None:
        """Follow the open iterations only, and start further ones up to the step's concurrency."""
        items = self._items.setdefault((step.path, iteration), _Items())
        count = len(run.state["items"])
        failures: list[StepRun | None] = []
        still_open = [index for index in items.open if self._is_open(step, _inner(iteration, index), items, decision, failures)]
        while items.next < count and len(still_open) < step.settings["concurrency"] and not any(failures):
            if self._is_open(step, _inner(iteration, items.next), items, decision, failures):
                still_open.append(items.next)
            items.next += 1
        items.open = still_open
        if len(items.outputs) == count:
            # Steps that were running when their iteration failed may be waiting since then.
            for failed_at, failed in items.failed.items():
                decision.give_up += self._close_open_runs(step.blocks, _inner(iteration, failed_at), failed)
            errors = {index: failed.error or {} for index, failed in items.failed.items()}
            decision.close.append(Close(step, iteration, run, [items.outputs[i] for i in range(count)], errors))
        return _first_failed(failures)

    def _is_open(self, step: Step, inner: str, items: "_Items", decision: Decision, failures: list[StepRun | None]) -> bool:
        """Whether this iteration continues; stores the output of a finished one, and adds a failure that ends the step."""
        continues = step.settings["on_error"] != "stop"
        part = Decision(decision.now) if continues else decision
        finished, output, failed = self._steps(step.blocks[0].steps, inner, part)
        index = int(inner.rpartition(".")[2])
        if failed is not None and (not continues or failed.error is None):
            failures.append(failed)
        elif failed is not None:
            open_runs = list(self._close_open_runs(step.blocks, inner, failed))
            decision.give_up += open_runs
            if open_runs:
                return True
            items.outputs[index], items.failed[index] = None, failed
            return False
        elif continues:
            decision.merge(part)
        if finished:
            items.outputs[index] = output
        return not finished

    def _close_open_runs(self, blocks: tuple[Block, ...], iteration: str, failed: StepRun) -> Iterator[StepRun]:
        """The open runs in these blocks with their final status: those around the failed run fail, others are cancelled."""
        for block in blocks:
            for step in block.steps:
                run = self.runs.get((step.path, iteration))
                if run is None:
                    continue
                if run.status in _OPEN:
                    is_enclosing = failed.path.startswith(f"{run.path}/")
                    yield replace(run, status="failed", error=failed.error) if is_enclosing else replace(run, status="cancelled")
                if step.kind == "for_each":
                    for index in range(len(run.state["items"]) if run.state else 0):
                        yield from self._close_open_runs(step.blocks, _inner(iteration, index), failed)
                else:
                    yield from self._close_open_runs(step.blocks, iteration, failed)


def is_undoable(step: Step, run: StepRun) -> bool:
    """Whether the run can be undone: it has really been performed, by this execution or the one it retries."""
    return bool(step.undo) and run.status == "succeeded" and run.result_source != "cached"


def is_over(step: Step, run: StepRun) -> bool:
    """Whether the process continues after this run."""
    return run.status in FINISHED or (run.status == "failed" and step.continues_after(run.error))


def contains_any(close: Close, keys: Iterable[Key]) -> bool:
    """Whether one of these step runs is inside the step to be closed."""
    path, iteration = f"{close.step.path}/", f"{close.iteration}." if close.iteration else ""
    return any(key[0].startswith(path) and f"{key[1]}.".startswith(iteration) for key in keys)


def _first_failed(runs: list[StepRun | None]) -> StepRun | None:
    """The first run with an error, since cancelled runs have none; else the first one."""
    failed = [run for run in runs if run is not None]
    return next((run for run in failed if run.error is not None), failed[0] if failed else None)


def _error_value(run: StepRun) -> Any:
    """The value in `errors` of a finished step: its error, or for a for_each the list of the errors of its iterations."""
    if run.status == "failed":
        return [run.error] if run.kind == "for_each" else run.error
    return (run.state or {}).get("errors") if run.kind == "for_each" else None


def _merge_scopes(by_iteration: Mapping[str, Mapping[str, Any]], iteration: str) -> dict[str, Any]:
    """The values of this iteration merged over those of the enclosing ones."""
    values = dict(by_iteration.get("", {}))
    parts = iteration.split(".") if iteration else []
    for depth in range(1, len(parts) + 1):
        values |= by_iteration.get(".".join(parts[:depth]), {})
    return values


def _inner(iteration: str, index: int) -> str:
    return f"{iteration}.{index}" if iteration else str(index)


@dataclass
class _Items:
    """The progress of a for_each: started but unfinished iterations, the next to start, the outputs of finished ones, and the
    runs with which iterations failed that do not end it."""

    open: list[int] = field(default_factory=list)
    next: int = 0
    outputs: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, StepRun] = field(default_factory=dict)


def _inner_ids(step: Step) -> list[str]:
    """The ids of the steps of a branch or parallel that run in its own iteration."""
    ids: list[str] = []
    for block in step.blocks:
        for inner in block.steps:
            ids.append(inner.id)
            if inner.kind in _SAME_ITERATION:
                ids += _inner_ids(inner)
    return ids
