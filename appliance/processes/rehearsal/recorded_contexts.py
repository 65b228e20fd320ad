"""Finds the context a step had in an earlier execution (input, previous outputs, for_each items) to test the step with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.engine.decide import FINISHED
from appliance.processes.models import Execution, StepRunRow

MAX_EXECUTIONS = 100
OUTPUT_BYTES, MOST_BYTES = 64 << 10, 512 << 10


@dataclass(frozen=True)
class RecordedContext:
    """The context of one step run; `status` is how that run ended, `left_out` are steps whose outputs are too long."""

    execution_id: str
    created_at: int
    version: int
    iteration: str
    status: str
    input: Mapping[str, Any]
    steps: Mapping[str, Any]
    items: Mapping[str, Any]
    left_out: tuple[str, ...] = ()


def find_recorded_context(
    scope: TenantScope, process_id: str, path: str, loops: Mapping[str, str], execution_id: str = ""
) -> RecordedContext | None:
    """The context of the step at `path` in `execution_id`, or in the newest of the last hundred executions that reached it.

    For a step inside a for_each it is the first failed run, or else the first one.  `loops` maps the paths of the enclosing
    for_each steps, outermost first, to the names of their items.
    """
    rows = db.rows(
        "SELECT newest.id, step_run.iteration, step_run.status FROM (SELECT id, created_at FROM execution WHERE tenant_id = ? AND "
        "process_id = ? AND (? = '' OR id = ?) ORDER BY created_at DESC LIMIT ?) AS newest "
        "JOIN step_run ON step_run.tenant_id = ? AND step_run.execution_id = newest.id AND step_run.path = ? "
        "AND step_run.status NOT IN ('skipped', 'pending') ORDER BY newest.created_at DESC, "
        "CASE WHEN step_run.status = 'failed' THEN 0 ELSE 1 END, length(step_run.iteration), step_run.iteration LIMIT 1",
        (scope.tenant_id, process_id, execution_id, execution_id, MAX_EXECUTIONS, scope.tenant_id, path),
    )
    if not rows:
        return None
    found_id, iteration, status = rows[0]
    row = scope.get(Execution, id=found_id)
    around = _iterations(iteration)
    near = (StepRunRow.execution_id == found_id) & StepRunRow.iteration.in_(around)
    runs = list(scope.select(StepRunRow).where(near).order_by(StepRunRow.started_at, StepRunRow.path))
    mine = next(run for run in runs if (run.path, run.iteration) == (path, iteration))
    steps, left_out = _outputs(runs, mine)
    return RecordedContext(
        execution_id=found_id, created_at=row.created_at, version=row.version, iteration=iteration, status=status, input=row.input,
        steps=steps, items=_items(runs, loops, iteration), left_out=left_out,
    )


def _iterations(iteration: str) -> list[str]:
    """An iteration and its enclosing ones: `2.1` is inside `2`, which is inside the outermost, ``."""
    parts = iteration.split(".") if iteration else []
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


def _outputs(runs: list[StepRunRow], mine: StepRunRow) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The outputs, by step id, of steps that started before; enclosing steps had no output yet."""
    steps, left_out, size = {}, [], 0
    for run in runs:
        is_around = run.path == mine.path or mine.path.startswith(f"{run.path}/") or run.path.startswith(f"{mine.path}/")
        is_later = mine.started_at is not None and (run.started_at or 0) > mine.started_at
        if run.status not in FINISHED or is_around or is_later:
            continue
        length = len(db.dump_json(run.output).encode())
        if length > OUTPUT_BYTES or size + length > MOST_BYTES:
            left_out.append(run.step)
            continue
        size += length
        steps[run.step] = run.output
    return steps, tuple(left_out)


def _items(runs: list[StepRunRow], loops: Mapping[str, str], iteration: str) -> dict[str, Any]:
    """The items of the enclosing for_each steps, by name."""
    indexes = iteration.split(".") if iteration else []
    items = {}
    for depth, ((path, name), index) in enumerate(zip(loops.items(), indexes, strict=False)):
        run = next((run for run in runs if (run.path, run.iteration) == (path, ".".join(indexes[:depth]))), None)
        loop_items = run.state.get("items") if run is not None and run.state else None
        if isinstance(loop_items, list) and int(index) < len(loop_items):
            items[name] = loop_items[int(index)]
    return items
