"""How a new execution begins: at its time, in its slot, at once or queued; and what becomes of it when that comes too late.

All of it inside `db.write`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.database import db
from appliance.core.errors import ConcurrencyLimited
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import tally
from appliance.processes.definitions.concurrency import Slot, read_rules, slot_of
from appliance.processes.engine import ending
from appliance.processes.engine.failing import make_error
from appliance.processes.executions.pausing import PAUSED, is_paused
from appliance.processes.models import Execution

from . import slots

HEAD_START_MS = 600_000
EXPIRED = "expired"
_EXPIRED_NEXT = "execute it again if it is still wanted, or give it longer with expires_in"


def rank_of(at: int, priority: int) -> int:
    """The lower, the earlier its turn: a step of priority counts as ten minutes of waiting, so that nothing waits forever."""
    return at - priority * HEAD_START_MS


@dataclass(frozen=True)
class Wanted:
    """When an execution shall begin, at the latest how long after that, and what it is given."""

    input: Mapping[str, Any]
    run_at: int | None
    expires_ms: int | None


@dataclass(frozen=True)
class Entry:
    """How an execution is entered: `begins_at` is when its turn may come, `held` why not yet."""

    begins_at: int
    is_later: bool
    held: str | None = None
    slot: Slot | None = None
    expires_at: int | None = None

    def waiting_for(self) -> dict[str, Any] | None:
        """What is told of a slot that is waited for."""
        return told_slot(self.slot) if self.slot is not None and self.held == slots.SLOT else None


def told_slot(slot: Slot) -> dict[str, Any]:
    return {"concurrency": {"key": slot.key, "limit": slot.limit}}


def enter(scope: TenantScope, process_id: str, version: int, wanted: Wanted, now: int) -> Entry:
    """Decide about a new execution; ConcurrencyLimited where its process refuses what finds no slot.

    With `cancel_running` older executions of its key are cancelled, and the new one waits for those that must still stop.
    """
    rules = read_rules(scope, process_id, version)
    later = wanted.run_at is not None and wanted.run_at > now
    begins_at = wanted.run_at if later and wanted.run_at is not None else now
    expires_ms = wanted.expires_ms if wanted.expires_ms is not None else rules.expires_ms
    expires_at = None if expires_ms is None else begins_at + expires_ms
    slot = slot_of(rules.concurrency, wanted.input) if rules.concurrency else None
    if later:
        return Entry(begins_at, True, None, slot, expires_at)
    if slot is not None and slot.behaviour == "reject" and not slots.is_free(scope, process_id, slot):
        which = Sentence(" with the key %(key)s", key=slot.key) if slot.key else ""
        raise ConcurrencyLimited(
            Sentence(
                "%(process_id)s runs at most %(limit)s at once%(which)s, and that many are under way; execute it again later",
                process_id=process_id, limit=slot.limit, which=which,
            ),
            headers={"Retry-After": "1"},
        )
    return Entry(begins_at, False, _held(scope, process_id, slot), slot, expires_at)


def _held(scope: TenantScope, process_id: str, slot: Slot | None, own_id: str = "") -> str | None:
    """Why an execution whose time has come may not begin yet."""
    if slot is not None:
        if slot.behaviour == "cancel_running":
            _cancel_older(scope, process_id, slot, own_id)
        if not slots.is_free(scope, process_id, slot):
            return slots.SLOT
    return PAUSED if is_paused(scope, process_id) else None


def _cancel_older(scope: TenantScope, process_id: str, slot: Slot, own_id: str) -> None:
    older = slots.older_ones(scope, process_id, slot, but=own_id)
    for execution_id in older[: max(0, len(older) - slot.limit + 1)]:
        row = scope.find(Execution, id=execution_id)
        if row is not None and row.finished_at is None:
            ending.cancel(scope, row)


def line_up(tenant_id: str, execution_id: str, now: int) -> bool:
    """Queue an execution whose time has come; whether it may begin at once.  One that is not due is left as it is."""
    found = db.rows(
        "SELECT process_id, started_at, slot, slot_limit, slot_behaviour FROM execution WHERE tenant_id = ? AND id = ? "
        "AND status IN ('waiting', 'scheduled') AND next_run_at <= ?",
        (tenant_id, execution_id, now),
    )
    if not found:
        return is_ready(tenant_id, execution_id)
    process_id, started_at, key, limit, behaviour = found[0]
    scope = TenantScope(tenant_id, "system")
    slot = None if key is None else Slot(key, limit, behaviour)
    held = None if started_at is not None else _held(scope, process_id, slot, execution_id)
    told = db.dump_json(told_slot(slot)) if slot is not None and held == slots.SLOT else None
    db.execute(
        "UPDATE execution SET status = 'queued', enqueued_at = ?, next_run_at = NULL, wait_reason = ?, waiting_for = ? "
        "WHERE tenant_id = ? AND id = ?",
        (now, held, told, tenant_id, execution_id),
    )
    return held is None


def is_ready(tenant_id: str, execution_id: str) -> bool:
    """Whether it is queued and nothing but its turn is missing."""
    return bool(
        db.rows(
            "SELECT 1 FROM execution WHERE tenant_id = ? AND id = ? AND status = 'queued' AND wait_reason IS NULL",
            (tenant_id, execution_id),
        )
    )


def late_ones(now: int, most: int) -> list[tuple[str, str]]:
    """Executions of every tenant that came too late to begin; a plain read."""
    found = db.rows(
        "SELECT tenant_id, id FROM execution WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL "
        "AND expires_at <= ? ORDER BY expires_at LIMIT ?",
        (now, most),
    )
    return [(row[0], row[1]) for row in found]


def expire(tenant_id: str, execution_id: str, now: int) -> bool:
    """End an execution that has not begun in time; False when it has begun since, or is over."""
    error = make_error("expired", "timeout", "its turn did not come before it expired, so it has not run") | {"next": _EXPIRED_NEXT}
    changed = db.execute(
        "UPDATE execution SET status = 'expired', finished_at = ?, next_run_at = NULL, wait_reason = NULL, waiting_for = NULL, "
        "error = ?, failure_class = ?, failure_code = ?, fence = fence + 1 WHERE tenant_id = ? AND id = ? AND started_at IS NULL "
        "AND finished_at IS NULL AND expires_at <= ?",
        (now, db.dump_json(error), error["failure_class"], error["code"], tenant_id, execution_id, now),
    )
    if changed != 1:
        return False
    scope = TenantScope(tenant_id, "system")
    ((process_id, created_at),) = db.rows(
        "SELECT process_id, created_at FROM execution WHERE tenant_id = ? AND id = ?", (tenant_id, execution_id)
    )
    store_end(scope, ending.Child(execution_id, process_id, EXPIRED, error=error), max(0, now - created_at))
    return True


def store_end(scope: TenantScope, child: ending.Child, took_ms: int) -> None:
    """What follows from the end of an execution that nobody ran."""
    ending.note_status(scope, child.execution_id, child.status, child.error)
    ending.close_execution(scope, child)
    tally.add(scope, "execution", f"{child.process_id}:{child.status}", took_ms)
