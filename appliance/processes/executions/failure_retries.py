"""Retries failures listed in Monitor: failed executions, and trigger events that failed to start one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.core.database.db import dump_json
from appliance.core.scope import TenantScope
from appliance.processes.models import Execution, StepRunRow
from appliance.processes.triggers.models import Firing

if TYPE_CHECKING:
    from appliance.processes.service import ProcessFlow

FAILED_STATUSES = ("failed", "timed_out")  # the statuses that Monitor groups as failures
_EXECUTION = re.compile(r"\bexe_[0-9A-Za-z]+")


def failed_children(scope: TenantScope, parents: Mapping[str, str]) -> set[str]:
    """Those of these children whose failure made a step of their parent fail, and the parent with it (the step's error names
    them)."""
    failed = scope.select(Execution, Execution.id).where(
        Execution.id.in_(set(parents.values())), Execution.status.in_(FAILED_STATUSES)
    )
    steps = scope.select(StepRunRow, StepRunRow.error).where(StepRunRow.execution_id.in_(failed), StepRunRow.status == "failed")
    mentioned = {each for row in steps for each in _EXECUTION.findall(dump_json(row.error))}
    return {child for child in parents if child in mentioned}


@dataclass(frozen=True)
class FailureRetries:
    """The retries behind `failures.retry_all`, with the version that failed or, if `published`, the published one."""

    flow: "ProcessFlow"
    published: bool = False

    def find_retryable(self, scope: TenantScope, failed_ids: Sequence[str]) -> set[str]:
        """Those that still exist and have not been retried; trigger events until they have started an execution.

        A child that its parent waited for is left out: the parent's retry runs it again, so it would run twice.
        """
        existing = list(scope.select(Execution, Execution.id, Execution.parent).where(Execution.id.in_(failed_ids)))
        retries = scope.select(Execution, Execution.retry_of).where(
            Execution.retry_of.is_null(False) & Execution.retry_of.in_(failed_ids)
        )
        events = scope.select(Firing, Firing.id).where(Firing.id.in_(failed_ids) & (Firing.status == "failed"))
        retryable = {row.id for row in existing} - {row.retry_of for row in retries}
        retryable -= failed_children(scope, {row.id: row.parent for row in existing if row.parent and row.id in retryable})
        return retryable | {row.id for row in events}

    def retry(self, scope: TenantScope, failed_id: str, token: str) -> str:
        """Retry it and answer the id of the new execution; Conflict if it has been retried in the meantime."""
        if failed_id.startswith("fir_"):
            return self.flow.triggers.firings.retry(scope, failed_id)
        return str(self.flow.retry_once(scope, failed_id, token, published=self.published).id)
