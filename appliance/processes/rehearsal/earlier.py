"""What a step saw in an earlier execution: the input, the outputs before it and the items around it, to test it with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.engine.decide import FINISHED
from appliance.processes.models import Execution, StepRunRow

LOOKED_AT = 100
OUTPUT_BYTES, MOST_BYTES = 64 << 10, 512 << 10


@dataclass(frozen=True)
class Seen:
    """As one step run of an execution saw it; `status` is how that run ended, `left_out` the steps whose outputs are too long."""

    execution_id: str
    created_at: int
    version: int
    iteration: str
    status: str
    input: Mapping[str, Any]
    steps: Mapping[str, Any]
    items: Mapping[str, Any]
    left_out: tuple[str, ...] = ()


def find_seen(
    scope: TenantScope, process_id: str, path: str, loops: Mapping[str, str], execution_id: str = ""
) -> Seen | None:
    """Of the newest execution, among the newest hundred, that came to the step at `path`, or of this one; None where there is none.

    Of a step in a for_each it is the first run that failed, or else the first at all.  `loops` are the for_each steps around it
    from the outside in, by path, with the names of their items.
    """
    found = db.rows(
        "SELECT newest.id, step_run.iteration, step_run.status FROM (SELECT id, created_at FROM execution WHERE tenant_id = ? AND "
        "process_id = ? AND (? = '' OR id = ?) ORDER BY created_at DESC LIMIT ?) AS newest "
        "JOIN step_run ON step_run.tenant_id = ? AND step_run.execution_id = newest.id AND step_run.path = ? "
        "AND step_run.status NOT IN ('skipped', 'pending') ORDER BY newest.created_at DESC, "
        "CASE WHEN step_run.status = 'failed' THEN 0 ELSE 1 END, length(step_run.iteration), step_run.iteration LIMIT 1",
        (scope.tenant_id, process_id, execution_id, execution_id, LOOKED_AT, scope.tenant_id, path),
    )
    if not found:
        return None
    known_id, iteration, status = found[0]
    row = scope.get(Execution, id=known_id)
    around = _iterations(iteration)
    near = (StepRunRow.execution_id == known_id) & StepRunRow.iteration.in_(around)
    runs = list(scope.select(StepRunRow).where(near).order_by(StepRunRow.started_at, StepRunRow.path))
    mine = next(run for run in runs if (run.path, run.iteration) == (path, iteration))
    steps, left_out = _outputs(runs, mine)
    return Seen(
        known_id, row.created_at, row.version, iteration, status, row.input, steps, _items(runs, loops, iteration), left_out
    )


def _iterations(iteration: str) -> list[str]:
    """An iteration and those around it: `2.1` stands in `2`, which stands in none."""
    parts = iteration.split(".") if iteration else []
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


def _outputs(runs: list[StepRunRow], mine: StepRunRow) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What steps that began before had come to, by id; those that the step stands in came to something only later."""
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
    """The items of the for_each steps around the step, by the names they have in there."""
    indexes = iteration.split(".") if iteration else []
    items = {}
    for depth, ((path, name), index) in enumerate(zip(loops.items(), indexes, strict=False)):
        run = next((run for run in runs if (run.path, run.iteration) == (path, ".".join(indexes[:depth]))), None)
        known = run.state.get("items") if run is not None and run.state else None
        if isinstance(known, list) and int(index) < len(known):
            items[name] = known[int(index)]
    return items
