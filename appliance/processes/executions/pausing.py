"""Pauses and resumes a process: started executions continue, queued ones are held back, and triggers do not fire."""

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.processes.models import Process

PAUSED = "paused"  # the wait_reason of a queued execution whose process is paused


def is_paused(scope: TenantScope, process_id: str) -> bool:
    """Whether the process is paused; call this inside the write that depends on it."""
    mine = (scope.tenant_id, process_id)
    rows = db.rows("SELECT 1 FROM process WHERE tenant_id = ? AND id = ? AND paused_at IS NOT NULL", mine)
    return bool(rows)


def pause_rows(scope: TenantScope, process_id: str) -> Process:
    """Inside a write: pause the process and hold back its queued executions; no effect if it is paused already."""
    row = scope.get(Process, id=process_id)
    if row.paused_at is not None:
        return row
    scope.update(Process, paused_at=clock.now_ms()).where(Process.id == process_id).execute()
    # The queued ones first, because otherwise SQLite reads all executions of the process.
    queued = "SELECT id FROM execution WHERE tenant_id = ? AND status = 'queued' AND wait_reason IS NULL"
    db.execute(
        f"UPDATE execution SET wait_reason = ? WHERE tenant_id = ? AND id IN ({queued}) AND process_id = ? AND started_at IS NULL",  # noqa: S608
        (PAUSED, scope.tenant_id, scope.tenant_id, process_id),
    )
    audit.record(scope, "process.pause", process_id)
    return scope.get(Process, id=process_id)


def resume_rows(scope: TenantScope, process_id: str) -> tuple[Process, list[str]]:
    """Inside a write: resume the process; answers the ids of the executions that were held back, in order."""
    row = scope.get(Process, id=process_id)
    if row.paused_at is None:
        return row, []
    scope.update(Process, paused_at=None).where(Process.id == process_id).execute()
    mine = (scope.tenant_id, process_id, PAUSED)
    where = "tenant_id = ? AND process_id = ? AND status = 'queued' AND wait_reason = ?"
    held_back = [row[0] for row in db.rows(f"SELECT id FROM execution WHERE {where} ORDER BY rank, id", mine)]  # noqa: S608
    db.execute(f"UPDATE execution SET wait_reason = NULL WHERE {where}", mine)  # noqa: S608 our own names
    audit.record(scope, "process.resume", process_id, {"held_back": len(held_back)})
    return scope.get(Process, id=process_id), held_back
