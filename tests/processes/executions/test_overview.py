"""The steps of an execution are counted as its runs say, on both databases, and once for all when it has ended."""

import random
from collections import Counter
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.engine import store
from appliance.processes.executions import overview
from appliance.processes.models import Execution, StepRunRow
from appliance.tenants import service
from tests.bench.filling import fill

COUNT = 40
STATUSES = ("pending", "running", "waiting", "retrying", "succeeded", "failed", "skipped", "cancelled", "timed_out")
COLUMNS = "tenant_id, execution_id, path, iteration, step, kind, status, attempt, result_source, started_at, finished_at"
INDEX = "step_run_unsuccessful (tenant_id=? AND execution_id=?"


@pytest.fixture
def scope(two_tenants: None) -> TenantScope:
    scope = service.system_scope("acme")
    fill(scope, COUNT)
    return scope


def add_runs(execution: Execution, count: int, statuses: tuple[str, ...]) -> None:
    """Add runs of three steps in a loop, of which some have not started and some not finished."""
    rng = random.Random(count)  # noqa: S311  made-up figures
    def add() -> None:
        for number in range(count):
            step = rng.choice("abc")
            times = [rng.choice([None, 1_000 + rng.randrange(500)]), rng.choice([None, 2_000 + rng.randrange(500)])]
            values = (f"loop/{step}", str(number), step, "rule", rng.choice(statuses), 1, "executed", *times)
            db.execute(
                f"INSERT INTO step_run ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (execution.tenant_id, execution.id, *values),
            )

    db.write(add)


def expected_counts(scope: TenantScope, execution: Execution) -> list[Any]:
    """The counts from all runs, read one by one."""
    by_path: dict[str, list[StepRunRow]] = {}
    for run in scope.select(StepRunRow).where(StepRunRow.execution_id == execution.id):
        by_path.setdefault(run.path, []).append(run)
    counts = []
    for path, runs in by_path.items():
        started = min((run.started_at for run in runs if run.started_at is not None), default=None)
        ended = None if any(run.finished_at is None for run in runs) else max(run.finished_at for run in runs)
        by_status = dict(sorted(Counter(run.status for run in runs).items()))
        is_loop = any(run.iteration for run in runs)
        counts.append(overview.StepCount(path, runs[0].step, runs[0].kind, started, ended, by_status, is_loop))
    return sorted(counts, key=lambda each: (each.started is None, each.started or 0, each.path))


def test_steps_are_counted_as_their_runs_say(scope: TenantScope) -> None:
    executions = list(scope.select(Execution))
    add_runs(executions[0], 200, STATUSES)
    add_runs(executions[1], 50, ("succeeded",))
    add_runs(executions[2], 50, ("failed",))
    for execution in executions:
        counts, expected = overview.count_steps(scope, execution), expected_counts(scope, execution)
        assert counts == expected
        assert [list(each.by_status) for each in counts] == [list(each.by_status) for each in expected]
        singles = overview.list_single_runs(scope, execution, counts)
        query = scope.select(StepRunRow).where((StepRunRow.execution_id == execution.id) & (StepRunRow.iteration == ""))
        assert singles.keys() == {run.path for run in query}


@pytest.mark.parametrize("is_finished", [True, False])
def test_the_steps_of_a_finished_execution_are_counted_once(
    scope: TenantScope, monkeypatch: pytest.MonkeyPatch, is_finished: bool
) -> None:
    monkeypatch.setattr(overview, "MANY_RUNS", 50)
    execution = next(each for each in scope.select(Execution) if (each.status in store.FINISHED) is is_finished)
    add_runs(execution, 50, STATUSES)
    first = overview.count_steps(scope, execution)
    assert (overview.count_steps(scope, execution) is first) is is_finished


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.writes_once(reason="counts statements")
def test_what_has_not_succeeded_is_read_from_an_index(scope: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = next(iter(scope.select(Execution)))
    add_runs(execution, 20, STATUSES)
    executed: list[tuple[str, Any]] = []
    run_statement = type(db.database.obj)._execute_cursor

    def note(self: Any, sql: str, params: Any, **options: Any) -> Any:
        executed.append((sql, params or ()))
        return run_statement(self, sql, params, **options)

    counts = overview.count_steps(scope, execution)
    monkeypatch.setattr(type(db.database.obj), "_execute_cursor", note)
    overview.list_loop_runs(scope, execution, counts, 1, 40)
    db.write(lambda: store.close_runs(scope, execution.id, "cancelled"))
    claim = store.Claim(scope, execution.id, execution.process_id, 1, 1, None, None, 0, 0, 0, False, "", 1)
    assert store.earliest_due(claim) is None
    executed.append((overview._COUNT_UNSUCCESSFUL, (scope.tenant_id, execution.id)))
    statements = [(sql, params) for sql, params in executed if "step_run" in sql]
    assert len(statements) == 4
    for sql, params in statements:
        plan = " ".join(str(line[3]) for line in db.rows(f"EXPLAIN QUERY PLAN {sql}", tuple(params)))
        assert INDEX in plan, sql
