"""Retries: which step runs of a finished execution a new one reuses, starting from the failure, the beginning or any step.

From a step means: earlier steps are reused, the step itself and later ones run again.  The same holds at every level of
nesting: enclosing blocks continue with the items and the option they had, and steps in other parallel branches are reused.
Inside a for_each this applies to every item.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.definitions.nodes import Block, Step
from appliance.processes.engine import store
from appliance.processes.engine.decide import Key, StepRun, is_over, is_undoable
from appliance.processes.host import tainting
from appliance.processes.models import Execution

Place = tuple[tuple[int, int], ...]
Relation = Literal["before", "around", "behind"]


def record_retry(scope: TenantScope, old: Execution, new: Execution, reused_runs: Iterable[StepRun]) -> None:
    """Inside the write that starts a retry: store the step runs it reuses and what has tainted them, and audit who started it."""
    for run in reused_runs:
        store.save_run(scope, new.id, run)
    tainting.add_sources(scope, new.id, tainting.sources_of(scope, old.id))
    audit.record(scope, "execution.retry", old.id, {"process_id": old.process_id, "version": new.version, "retried_as": new.id})


def reusable_runs(scope: TenantScope, execution: Execution, start_from: str, compiled: CompiledVersion) -> list[StepRun]:
    """The step runs a retry reuses: all that succeeded (`failed`), none (`start`), or those before a step (id or path).

    Undone steps are not reused: `failed` starts from the first top-level step with an undone one in it.  Conflict while the
    execution is not finished, and for a step after an undone one; ValidationFailed for a step that does not exist or that the
    execution did not reach.
    """
    if execution.status not in store.FINISHED or (execution.status == "succeeded" and start_from == "failed"):
        raise Conflict(Sentence(
            "the execution is %(status)s; only a finished execution that did not succeed can be retried from `failed`",
            status=execution.status,
        ))
    if start_from == "start":
        return []
    runs = [run for run in store.load_runs(scope, execution.id) if run.path not in compiled.definition.compensation_paths]
    undone = [str(place["path"]) for place in (execution.aftermath or {}).get("undone", ())]
    if start_from == "failed":
        first = next((step.id for step in compiled.definition.steps if any(_is_at(path, step.path) for path in undone)), None)
        if first is None:
            return _reuse_runs(runs, compiled)
        start_from = first
    from appliance.processes.rehearsal.replay import find_step

    target = _Target(compiled, find_step(start_from, compiled, pointer="/from"))
    if target.path in compiled.definition.compensation_paths:
        raise ValidationFailed(
            Sentence("%(path)s only runs after an execution has failed; retry from another step", path=target.path), pointer="/from"
        )
    undone_before = next((path for path in undone if target.relation(path) == "before"), None)
    if undone_before is not None:
        raise Conflict(Sentence("%(gone)s has been undone; retry from there, or from a step before it", gone=undone_before))
    enclosing = [target.reopened(run) for run in runs if target.relation(run.path) == "around"]
    reopened = [run for run in enclosing if run is not None]
    target.check_reachable(reopened)
    before = [run for run in runs if target.relation(run.path) == "before"]
    return [*reopened, *_reuse_runs(target.skip_stops(before), compiled)]


def _is_at(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}/")


@dataclass(frozen=True)
class _Target:
    """The step from which everything runs again."""

    compiled: CompiledVersion
    path: str

    @cached_property
    def _places(self) -> Mapping[str, Place]:
        """The position of every step: for each level of nesting, the index of the block and of the step in it."""
        return dict(_places((Block(self.compiled.definition.steps),), ()))

    def relation(self, path: str) -> Relation:
        """Whether the runs at `path` are reused (`before`), continued (`around`) or run again (`behind`)."""
        place, mine = self._places.get(path), self._places[self.path]
        if place is None:
            return "behind"
        for (block, index), (my_block, my_index) in zip(place, mine, strict=False):
            if block != my_block:
                return "before"
            if index != my_index:
                return "before" if index < my_index else "behind"
        return "around" if len(place) < len(mine) else "behind"

    def reopened(self, run: StepRun) -> StepRun | None:
        """The run of an enclosing step, reopened; reused as it was if it never entered its block, None if it failed before."""
        step = self.compiled.steps[run.path]
        if step.kind != run.kind:
            raise _cannot_retry_from(f"{step.id} is a {step.kind} in this version and was a {run.kind}", step)
        if run.state is None:
            return replace(run, result_source="reused") if is_over(step, run) else None
        state = {name: value for name, value in run.state.items() if name != "errors"}
        if step.kind == "parallel":
            state = {"branches": [block.name for block in step.blocks]}
        elif step.kind == "branch" and state["taken"] >= len(step.blocks):
            raise _cannot_retry_from(f"the option that {step.id} took does not exist in this version", step)
        return replace(run, status="running", output=None, error=None, finished_at=None, state=state)

    def check_reachable(self, around: Iterable[StepRun]) -> None:
        """ValidationFailed unless the execution would reach the target."""
        parent = self.path.rpartition("/")[0]
        if not parent:
            return
        step = self.compiled.steps[parent]
        parent_runs = [run for run in around if run.path == parent and run.state is not None]
        if not parent_runs:
            raise _cannot_retry_from(f"the execution did not reach the steps in {step.id}", step)
        block = self._places[self.path][-1][0]
        if step.kind == "branch" and all(run.state["taken"] != block for run in parent_runs):
            raise _cannot_retry_from(f"{step.id} took another option", step)

    def skip_stops(self, runs: list[StepRun]) -> list[StepRun]:
        """The runs with stops disabled: a `stop` that ended the execution must not end the retry that continues after it.

        The stop, or the block beside the target (or beside a block around it) that contains it, becomes skipped together with
        everything it interrupted.
        """
        skipped = {self._beside(run) for run in runs if run.kind == "stop" and run.status == "succeeded"}
        remaining = [run for run in runs if (run.path, run.iteration) in skipped or not _is_inside(run, skipped)]
        return [
            replace(run, status="skipped", output=None, error=None, state=None) if (run.path, run.iteration) in skipped else run
            for run in remaining
        ]

    def _beside(self, stop: StepRun) -> Key:
        parts, mine = stop.path.split("/"), self.path.split("/")
        depth = next(index for index, part in enumerate(parts) if part != mine[index])
        path = "/".join(parts[: depth + 1])
        loops = sum(self.compiled.steps["/".join(parts[:count])].kind == "for_each" for count in range(1, depth + 1))
        return path, ".".join(stop.iteration.split(".")[:loops])


def _places(blocks: tuple[Block, ...], outer: Place) -> Iterable[tuple[str, Place]]:
    for number, block in enumerate(blocks):
        for index, step in enumerate(block.steps):
            place = (*outer, (number, index))
            yield step.path, place
            yield from _places(step.blocks, place)


def _cannot_retry_from(reason: str, step: Step) -> ValidationFailed:
    return ValidationFailed(Sentence("%(reason)s; retry from %(id)s instead", reason=reason, id=step.id), pointer="/from")


# -- reused runs


def _reuse_runs(runs: list[StepRun], compiled: CompiledVersion) -> list[StepRun]:
    over = {(run.path, run.iteration) for run in runs if run.state is not None and _is_complete(run, compiled)}
    return [_reused(run, compiled) for run in runs if _is_reusable(run, compiled) or _is_inside(run, over)]


def _is_complete(run: StepRun, compiled: CompiledVersion) -> bool:
    """Whether the run is reused as it is: it succeeded, or failed in a way after which this version continues too."""
    step = compiled.steps.get(run.path)
    return step is not None and step.kind == run.kind and is_over(step, run)


def _is_reusable(run: StepRun, compiled: CompiledVersion) -> bool:
    """Reused as it is, or an unfinished block that has the same kind in this version and can be continued."""
    step = compiled.steps.get(run.path)
    if step is None or step.kind != run.kind:
        return False
    if is_over(step, run) or run.state is None:
        return is_over(step, run)
    if run.kind == "parallel":
        return bool(run.state["branches"] == [block.name for block in step.blocks])
    return run.kind == "for_each" or (run.kind == "branch" and run.state["taken"] < len(step.blocks))


def _is_inside(run: StepRun, holders: set[Key]) -> bool:
    """Whether the run is inside one of these steps: a failed run inside a reused block is reused with it."""
    parts, indexes = run.path.split("/"), run.iteration.split(".")
    paths = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    return any((path, ".".join(indexes[:loop_depth])) in holders for path in paths for loop_depth in range(len(indexes) + 1))


def _reused(run: StepRun, compiled: CompiledVersion) -> StepRun:
    if _is_complete(run, compiled) or not _is_reusable(run, compiled):
        step = compiled.steps.get(run.path)
        # The step may have become undoable with another version: it gets order 0 and is undone last.
        order = run.undo_order or 0 if step is not None and is_undoable(step, run) else None
        return replace(run, result_source="reused", undo_order=order)
    return replace(run, status="running", error=None, finished_at=None)
