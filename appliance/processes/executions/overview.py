"""The step runs of an execution for display: counts per step, single runs in full, runs in loops a page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peewee import fn

from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.pages import Page
from appliance.core.scope import TenantScope
from appliance.processes.models import EventRow, Execution, StepRunRow

# The statuses of runs that need attention or are not finished.
ATTENTION_STATUSES = ("failed", "timed_out", "retrying", "waiting", "running", "cancelled")
MOST_EVENTS = 500


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
    counts: dict[str, StepCount] = {}
    for path, step, kind, status, count, began, ended, finished, items in db.rows(
        "SELECT path, step, kind, status, COUNT(*), MIN(started_at), MAX(finished_at), COUNT(finished_at), MAX(iteration) "
        "FROM step_run WHERE tenant_id = ? AND execution_id = ? GROUP BY path, step, kind, status",
        (scope.tenant_id, execution.id),
    ):
        step_count = counts.get(path)
        if step_count is None:
            step_count = counts[path] = StepCount(path, step, kind, began, ended if finished == count else None)
        else:
            step_count.started = began if step_count.started is None else min(step_count.started, began or step_count.started)
            step_count.ended = None if step_count.ended is None or finished < count else max(step_count.ended, ended)
        step_count.by_status[status] = count
        step_count.is_loop = step_count.is_loop or bool(items) or step_count.total > 1
    return sorted(counts.values(), key=lambda each: (each.started is None, each.started or 0, each.path))


def list_single_runs(scope: TenantScope, execution: Execution) -> dict[str, StepRunRow]:
    """The complete step runs outside of loops by path; at most as many as the definition has steps."""
    query = scope.select(StepRunRow).where((StepRunRow.execution_id == execution.id) & (StepRunRow.iteration == ""))
    return {row.path: row for row in query}


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
        rows.extend(query.where(StepRunRow.status.in_(ATTENTION_STATUSES) & StepRunRow.path.in_(noteworthy)).limit(most))
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
