"""Claims of executions, made from their rows."""

from appliance.core.scope import TenantScope
from appliance.processes.models import Execution

from . import tracing
from .deferred import DeferredRow
from .store import Claim


def claim_of(scope: TenantScope, row: Execution, fence: int, deferred: DeferredRow | None = None) -> Claim:
    """The claim on `row` with this fence."""
    label = row.label_text if row.first_label is None else row.first_label or None
    trace = row.trace or ""
    return Claim(
        scope=tracing.scope_of(scope, row.id, trace), execution_id=row.id, process_id=row.process_id, version=row.version,
        fence=fence, input=row.input, label=label, created_at=row.created_at, started_at=row.started_at,
        active_ms=row.active_ms, cancel_requested=bool(row.cancel_requested), request_id=row.request_id, claims=row.claims,
        compensation=row.aftermath, handles=row.handles, trace=trace,
        deferred=deferred,
    )  # fmt: skip


def claim_at_birth(scope: TenantScope, row: Execution, deferred: DeferredRow | None = None) -> Claim:
    """The claim of an execution that this process inserted as running, or will."""
    own = TenantScope(scope.tenant_id, f"execution:{row.id}", request_id=scope.request_id, started_by=row.actor)
    return claim_of(own, row, row.fence, deferred)
