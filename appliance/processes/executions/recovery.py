"""Marks failures as recovered after a successful retry: the retried executions, and with them failure groups in Monitor."""

from collections.abc import Sequence

from appliance.core.scope import TenantScope
from appliance.monitor import failures
from appliance.processes.models import Execution
from appliance.processes.triggers.models import Firing

from .failure_retries import FAILED_STATUSES, failed_children

MOST_RETRIES = 100


def note_success(scope: TenantScope, retry_of: str) -> None:
    """Inside a commit: a retry of this execution succeeded.  This recovers the whole chain of retries behind it, and the
    children whose failure made a step of these fail."""
    chain = _chain(scope, retry_of)
    failures.record_recovered(scope, [*chain, *_children(scope, chain)], find_failed)


def find_success(scope: TenantScope, execution_id: str) -> str | None:
    """The newest successful retry of this execution, directly or through other retries; None if there is none."""
    pending, successes = [execution_id], list[str]()
    for _ in range(MOST_RETRIES):
        rows = scope.select(Execution, Execution.id, Execution.status).where(Execution.retry_of.in_(pending))
        states = {row.id: row.status for row in rows}
        successes += [each for each, status in states.items() if status == "succeeded"]
        pending = [each for each, status in states.items() if status != "succeeded"]
        if not pending:
            break
    return max(successes, default=None)


def find_failed(scope: TenantScope, failed_ids: Sequence[str]) -> set[str]:
    """Those that still exist and have failed: executions, and trigger events that started none."""
    rows = scope.select(Execution, Execution.id).where(Execution.id.in_(failed_ids), Execution.status.in_(FAILED_STATUSES))
    events = scope.select(Firing, Firing.id).where(Firing.id.in_(failed_ids) & (Firing.status == "failed"))
    return {row.id for row in rows} | {row.id for row in events}


def _chain(scope: TenantScope, execution_id: str | None) -> list[str]:
    """The execution and the ones it is a retry of, newest first."""
    ids: list[str] = []
    while execution_id is not None and len(ids) < MOST_RETRIES:
        ids.append(execution_id)
        row = scope.find(Execution, id=execution_id)
        execution_id = row.retry_of if row is not None else None
    return ids


def _children(scope: TenantScope, parents: Sequence[str]) -> set[str]:
    """The failed children that made these executions fail, and their failed children in turn."""
    children: set[str] = set()
    pending = set(parents)
    while pending:
        rows = scope.select(Execution, Execution.id, Execution.parent).where(
            Execution.parent.in_(pending), Execution.status.in_(FAILED_STATUSES)
        )  # fmt: skip
        pending = failed_children(scope, {row.id: row.parent for row in rows}) - children
        children |= pending
    return children
