"""Cancels or retries many executions in one request, each independently; a request can safely be repeated."""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from appliance.core.database import db
from appliance.core.errors import ApplianceError, Draining, ExecutionFinished, StorageFull
from appliance.core.scope import TenantScope
from appliance.processes.models import Execution

from . import service as executions
from .service import ExecutionFilter

if TYPE_CHECKING:
    from appliance.processes.service import ProcessFlow

Action = Literal["cancel", "retry"]
MAX_EXECUTIONS = 500
MAX_LISTED_REFUSALS = 50
_CANCELLABLE = ("scheduled", "queued", "running", "waiting")
_RETRYABLE = ("failed", "cancelled", "timed_out", "expired")


@dataclass(frozen=True)
class Refusal:
    """An execution that could not be retried, and why."""

    execution_id: str
    code: str
    message: str


@dataclass
class BulkResult:
    """How many executions `matched` and how many were `done`; `next` is the id to continue after, None if these were all."""

    matched: int = 0
    done: int = 0
    next: str | None = None
    refused: int = 0
    refusals: list[Refusal] = field(default_factory=list)


def find_targets(scope: TenantScope, criteria: ExecutionFilter, action: Action, after: str = "") -> list[str]:
    """The oldest executions that match the filter and allow the action, up to one more than a request handles.

    Executions that have been retried already are skipped, so that a request can be repeated.
    """
    query = executions.matching_query(scope, criteria).where(
        Execution.status.in_(_CANCELLABLE if action == "cancel" else _RETRYABLE)
    )
    if action == "retry":
        retried = scope.select(Execution, Execution.retry_of).where(Execution.retry_of.is_null(False))
        query = query.where(Execution.id.not_in(retried))
    if after:
        query = query.where(Execution.id > after)
    return [row.id for row in query.order_by(Execution.id).limit(MAX_EXECUTIONS + 1)]


def run_bulk(flow: "ProcessFlow", scope: TenantScope, criteria: ExecutionFilter, action: Action, after: str = "") -> BulkResult:
    """Act on at most `MAX_EXECUTIONS` executions after `after`; counts refusals, and lists the first `MAX_LISTED_REFUSALS`."""
    execution_ids = find_targets(scope, criteria, action, after)
    result = BulkResult(
        matched=min(len(execution_ids), MAX_EXECUTIONS),
        next=execution_ids[MAX_EXECUTIONS - 1] if len(execution_ids) > MAX_EXECUTIONS else None,
    )
    for execution_id in execution_ids[:MAX_EXECUTIONS]:
        try:
            _act_on(flow, scope, execution_id, action)
            result.done += 1
        except (Draining, StorageFull):
            raise
        except ApplianceError as error:
            result.refused += 1
            if len(result.refusals) < MAX_LISTED_REFUSALS:
                result.refusals.append(Refusal(execution_id, error.code, error.message))
    return result


def _act_on(flow: "ProcessFlow", scope: TenantScope, execution_id: str, action: Action) -> Any:
    if action == "retry":
        # The token makes two simultaneous requests start a single retry.
        return flow.retry_once(scope, execution_id, f"bulk-retry:{execution_id}")
    try:
        return db.write(partial(executions.cancel_rows, scope, execution_id, None))
    except ExecutionFinished:  # it has finished since it was selected
        return None
