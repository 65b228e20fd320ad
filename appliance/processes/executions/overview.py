"""The step runs of an execution for display: counts per step, single runs in full, runs in loops a page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peewee import SQL, fn

from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.errors import NotFound
from appliance.core.pages import Page
from appliance.core.scope import TenantScope
from appliance.processes.engine.store import FINISHED
from appliance.processes.models import EventRow, Execution, StepRunRow

# The statuses of runs that need attention or are not finished.
ATTENTION_STATUSES = ("failed", "timed_out", "retrying", "waiting", "running", "cancelled")
MOST_EVENTS = 500
MANY_RUNS = 300


@dataclass
class StepCount:
    """The runs of one step: how many per status, and from when to when; `ended` is None while one of them is unfinished."""

    path: str
    step: str
    kind: str
    started: int | None = None
    ended: int | None = None
    by_status: dict[str, int] = field(default_factory=dict)
    is_loop: bool = False

    @property
    def total(self) -> int:
        return sum(self.by_status.values())


@dataclass(frozen=True)
class RunFilter:
    """Which runs of a step to list: only those with these statuses (if any), after the iteration `after`."""

    statuses: Sequence[str] = ()
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True)
class Attempt:
    """One attempt of a step run: how it ended, and when."""

    attempt: int
    status: str
    at: int


def count_steps(scope: TenantScope, execution: Execution) -> list[StepCount]:
    """Every step that has run, in the order in which they started; inputs and outputs are not read."""
    key = (scope.tenant_id, execution.id, execution.finished_at)
    if counts := _counts.get(key):
        return counts
    with db.snapshot():
        by_path = _count_by_path(scope, execution)
    counts = sorted(by_path.values(), key=lambda each: (each.started is None, each.started or 0, each.path))
    if execution.status in FINISHED and sum(each.total for each in counts) >= MANY_RUNS:
        _counts[key] = counts
    return counts


_counts: Cache[tuple[str, str, int | None], list[StepCount]] = Cache(200)  # of finished executions with MANY_RUNS
_COUNT_RUNS = """
SELECT run.path, run.step, run.kind, steps.count, steps.started, steps.ended, steps.ended_count, steps.last FROM (
    SELECT path, COUNT(*) AS count, MIN(started_at) AS started, MAX(finished_at) AS ended, COUNT(finished_at) AS ended_count,
        MAX(iteration) AS last FROM step_run WHERE tenant_id = ? AND execution_id = ? GROUP BY path
) AS steps
JOIN step_run AS run ON run.tenant_id = ? AND run.execution_id = ? AND run.path = steps.path AND run.iteration = steps.last
"""
_COUNT_UNSUCCESSFUL = """
SELECT path, status, COUNT(*) FROM step_run WHERE tenant_id = ? AND execution_id = ? AND status <> 'succeeded'
GROUP BY path, status
"""


def _count_by_path(scope: TenantScope, execution: Execution) -> dict[str, StepCount]:
    """The counts by path.  Grouping the runs by their status would read them in another order, and take twice as long."""
    of_execution = (scope.tenant_id, execution.id)
    by_path: dict[str, StepCount] = {}
    for path, step, kind, count, started, ended, ended_count, last in db.rows(_COUNT_RUNS, of_execution * 2):
        is_over, is_loop = ended_count == count, bool(last) or count > 1
        by_path[path] = StepCount(
            path, step, kind, started=started, ended=ended if is_over else None, by_status={"succeeded": count}, is_loop=is_loop
        )
    for path, status, count in db.rows(_COUNT_UNSUCCESSFUL, of_execution):
        by_path[path].by_status[status] = count
        by_path[path].by_status["succeeded"] -= count
    for each in by_path.values():
        each.by_status = {status: count for status, count in sorted(each.by_status.items()) if count}
    return by_path


def list_single_runs(scope: TenantScope, execution: Execution, counts: Sequence[StepCount]) -> dict[str, StepRunRow]:
    """The complete step runs outside of loops by path, for the steps in `counts`."""
    paths = [each.path for each in counts if not each.is_loop]
    query = scope.select(StepRunRow).where((StepRunRow.execution_id == execution.id) & (StepRunRow.iteration == ""))
    return {row.path: row for row in query.where(StepRunRow.path.in_(paths))} if paths else {}


def list_runs(scope: TenantScope, execution: Execution, path: str, criteria: RunFilter) -> Page[StepRunRow]:
    """The runs of one step in the order of their iteration, without input and output."""
    query = _without_values(scope, execution).where(StepRunRow.path == path)
    if criteria.statuses:
        query = query.where(StepRunRow.status.in_(list(criteria.statuses)))
    # Iterations are stored as texts: comparing their length first sorts 9 before 10.
    size = fn.LENGTH(StepRunRow.iteration)
    if criteria.after is not None:
        after = len(criteria.after)
        query = query.where((size > after) | ((size == after) & (StepRunRow.iteration > criteria.after)))
    rows = list(query.order_by(size, StepRunRow.iteration).limit(criteria.limit + 1))
    return Page(rows[: criteria.limit], rows[criteria.limit - 1].iteration if len(rows) > criteria.limit else None)


def list_loop_runs(
    scope: TenantScope, execution: Execution, counts: Sequence[StepCount], few: int, most: int
) -> dict[str, list[StepRunRow]]:
    """Runs of the steps in loops by path, without values: all runs if a step has at most `few`, else only those in TROUBLE."""
    loops = [each for each in counts if each.is_loop]
    small = [each.path for each in loops if each.total <= few]
    noteworthy = [
        each.path for each in loops if each.total > few and any(each.by_status.get(status) for status in ATTENTION_STATUSES)
    ]
    query = _without_values(scope, execution).where(StepRunRow.iteration != "")
    rows = list(query.where(StepRunRow.path.in_(small))) if small else []
    if noteworthy:
        # The first condition is that of an index.
        needs_attention = SQL("status <> 'succeeded'") & StepRunRow.status.in_(ATTENTION_STATUSES)
        rows.extend(query.where(needs_attention & StepRunRow.path.in_(noteworthy)).limit(most))
    by_path: dict[str, list[StepRunRow]] = {}
    for row in sorted(rows, key=lambda row: (len(row.iteration), row.iteration)):
        by_path.setdefault(row.path, []).append(row)
    return by_path


def _without_values(scope: TenantScope, execution: Execution) -> Any:
    columns = (
        StepRunRow.execution_id, StepRunRow.path, StepRunRow.iteration, StepRunRow.step, StepRunRow.kind, StepRunRow.status,
        StepRunRow.attempt, StepRunRow.result_source, StepRunRow.error, StepRunRow.started_at, StepRunRow.finished_at,
        StepRunRow.next_run_at,
    )  # fmt: skip
    return scope.select(StepRunRow, *columns).where(StepRunRow.execution_id == execution.id)


def get_run(scope: TenantScope, execution: Execution, path: str, iteration: str) -> StepRunRow:
    """One step run; NotFound."""
    row: StepRunRow | None = scope.find(StepRunRow, execution_id=execution.id, path=path, iteration=iteration)
    if row is None:
        raise NotFound("there is no such step in this execution")
    return row


def list_paths(scope: TenantScope, execution: Execution) -> list[str]:
    """The paths of the steps that have run."""
    sql = "SELECT DISTINCT path FROM step_run WHERE tenant_id = ? AND execution_id = ? ORDER BY path"
    return [str(path) for (path,) in db.rows(sql, (scope.tenant_id, execution.id))]


def list_attempts(scope: TenantScope, execution: Execution) -> Mapping[tuple[str, str], list[Attempt]]:
    """The finished attempts by path and iteration, for step runs with more than one; from the first 500 events."""
    query = scope.select(EventRow).where((EventRow.execution_id == execution.id) & (EventRow.type == "step"))
    attempts: dict[tuple[str, str], list[Attempt]] = {}
    for event in query.order_by(EventRow.id).limit(MOST_EVENTS):
        data = event.data
        if data.get("status") != "running":
            key = (str(data.get("path")), str(data.get("iteration") or ""))
            attempts.setdefault(key, []).append(Attempt(int(data.get("attempt", 1)), str(data.get("status")), event.at))
    return {key: tries for key, tries in attempts.items() if tries[-1].attempt > 1}
