"""What Monitor lists as failed, done again: executions, and events of triggers that started none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.core.scope import TenantScope

from .models import Execution
from .triggers.models import Firing

if TYPE_CHECKING:
    from .service import ProcessFlow


@dataclass(frozen=True)
class FailedWork:
    """For `failures.retry_all`; with the version that failed, or the `published` one."""

    flow: "ProcessFlow"
    published: bool = False

    def left_to_retry(self, scope: TenantScope, failed_ids: Sequence[str]) -> set[str]:
        """Those of them that are still there and that nobody has retried yet; an event also until it started an execution."""
        there = scope.select(Execution, Execution.id).where(Execution.id.in_(failed_ids))
        retries = scope.select(Execution, Execution.retry_of).where(
            Execution.retry_of.is_null(False) & Execution.retry_of.in_(failed_ids)
        )
        events = scope.select(Firing, Firing.id).where(Firing.id.in_(failed_ids) & (Firing.status == "failed"))
        left = {row.id for row in there} - {row.retry_of for row in retries}
        return left | {row.id for row in events}

    def retry(self, scope: TenantScope, failed_id: str, token: str) -> str:
        """The id of the execution that does it again; Conflict when somebody else was quicker to ask."""
        if failed_id.startswith("fir_"):
            return self.flow.triggers.firings.retry(scope, failed_id)
        return str(self.flow.retry_once(scope, failed_id, token, published=self.published).id)
