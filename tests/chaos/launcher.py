"""Starts `gos serve` or `gos worker`, optionally with one defence removed: the control that the chaos test must fail."""

from typing import Any

from appliance.cli import main
from appliance.core.database import db
from appliance.processes.engine import store
from appliance.processes.engine.runner import Runner
from appliance.processes.scheduling import sweeper


def remove_fence() -> None:
    """Claims and commits no longer ask who holds the execution."""

    def claim(scope: Any, execution_id: str, owner: str, fence: int, lease_until: int, now: int) -> bool:
        sql = "UPDATE execution SET status = 'running', owner = ?, lease_until = ?, fence = fence + 1 "
        sql += "WHERE tenant_id = ? AND id = ?"
        return db.execute(sql, (owner, lease_until, scope.tenant_id, execution_id)) == 1

    def settle(claim: Any, status: str, active_ms: int, changes: dict[str, Any]) -> None:
        columns = "".join(f", {name} = ?" for name in changes)
        sql = f"UPDATE execution SET status = ?, active_ms = ?, owner = NULL{columns} WHERE tenant_id = ? AND id = ?"  # noqa: S608
        db.execute(sql, (status, active_ms, *changes.values(), claim.scope.tenant_id, claim.execution_id))

    store.claim = claim
    store.settle = settle
    store.check_fence = lambda claim: None
    store.record_progress = lambda claim, lease_until, active_ms: False
    store.renew_lease = lambda claim, lease_until, active_ms: False
    Runner._claimable = lambda self, row, now: True  # type: ignore[method-assign]
    from appliance.processes.host import journal

    journal.check_fence = lambda claim: None  # type: ignore[attr-defined]

    def requeue(self: sweeper.Sweeper, orphans: list[tuple[str, str, int]]) -> None:
        for tenant_id, execution_id, _ in orphans:
            db.execute("UPDATE execution SET status = 'queued' WHERE tenant_id = ? AND id = ?", (tenant_id, execution_id))
            self._wakes.wake(tenant_id, execution_id)

    sweeper.Sweeper._requeue = requeue  # type: ignore[method-assign]

    def everybody(self: sweeper.Sweeper, now: int) -> list[Any]:
        return db.rows("SELECT tenant_id, id, fence FROM execution WHERE status = 'running' LIMIT 200")

    # Messages no longer name what is run: without this nobody would ever reach for what another holds.
    sweeper.Sweeper._find_orphans = everybody  # type: ignore[method-assign]


def remove_sweeper() -> None:
    """Nobody looks for lost work."""
    sweeper.Sweeper.sweep = lambda self: 0  # type: ignore[method-assign]


CONTROLS = {"none": lambda: None, "fence": remove_fence, "sweeper": remove_sweeper}


def launch(control: str, argv: list[str]) -> int:
    """`gos` with these arguments, without the defence that `control` names; its exit code."""
    CONTROLS[control]()
    return main(argv)
