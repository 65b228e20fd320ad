"""Slots of concurrency keys: derived from the execution rows, and passed on in the transaction that ends an execution.

An execution holds its slot from the moment it may start until it is finished, also while it waits.
"""

from appliance.core.database import db
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.processes.definitions.concurrency import Slot
from appliance.processes.engine.suspension import ExecutionAnswered
from appliance.processes.executions.pausing import PAUSED, is_paused

SLOT = "slot"  # the wait_reason of a queued execution that has no slot yet
# Repeats the condition of the partial index, so that waiting executions are not scanned.
_HOLDERS = (
    "tenant_id = ? AND process_id = ? AND slot = ? AND slot IS NOT NULL AND finished_at IS NULL AND status <> 'scheduled' "
    "AND COALESCE(wait_reason, '') <> 'slot'"
)
_WAITERS = "tenant_id = ? AND process_id = ? AND status = 'queued' AND wait_reason = 'slot' AND slot = ?"


def is_free(scope: TenantScope, process_id: str, slot: Slot) -> bool:
    """Whether a slot of this key is free; inside a write."""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM execution WHERE {_HOLDERS} LIMIT ?) AS held"  # noqa: S608 our own names
    return bool(db.rows(sql, (scope.tenant_id, process_id, slot.key, slot.limit))[0][0] < slot.limit)


def list_older(scope: TenantScope, process_id: str, slot: Slot, but: str = "") -> list[str]:
    """The unfinished executions of this key that are not being cancelled, oldest first, except `but`; inside a write."""
    mine = (scope.tenant_id, process_id, slot.key)
    rows = db.rows(f"SELECT created_at, id FROM execution WHERE {_WAITERS}", mine)  # noqa: S608
    holding = f"SELECT created_at, id FROM execution WHERE {_HOLDERS} AND status <> 'cancelling'"  # noqa: S608
    rows += db.rows(holding, mine)
    return [execution_id for _, execution_id in sorted(rows) if execution_id != but]


def fill_slots(scope: TenantScope, process_id: str, key: str) -> None:
    """Starts as many waiting executions as there are free slots; inside a write."""
    mine = (scope.tenant_id, process_id, key)
    first = f"SELECT id, slot_limit FROM execution WHERE {_WAITERS} ORDER BY rank, id LIMIT 1"  # noqa: S608 our own names
    while rows := db.rows(first, mine):
        ((execution_id, limit),) = rows
        if not is_free(scope, process_id, Slot(key, limit, "queue")):
            return
        wait_reason = PAUSED if is_paused(scope, process_id) else None
        db.execute(
            "UPDATE execution SET wait_reason = ?, waiting_for = NULL WHERE tenant_id = ? AND id = ?",
            (wait_reason, scope.tenant_id, execution_id),
        )
        if wait_reason is None:
            _announce(scope.tenant_id, execution_id)


def _announce(tenant_id: str, execution_id: str) -> None:
    db.after_commit(lambda: hub.publish(ExecutionAnswered(tenant_id, execution_id)))
