"""Admits new executions: scheduled, waiting for a slot, or queued; and expires those that could not start in time.

Everything here runs inside `db.write`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.database import db
from appliance.core.database.sentence_fields import dump_error
from appliance.core.errors import ConcurrencyLimited
from appliance.core.leases.open_tenants import FENCED
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import tally
from appliance.processes.definitions.concurrency import EntryRules, Slot, load_rules, rules_of, slot_of
from appliance.processes.engine import completion
from appliance.processes.engine.failures import make_error
from appliance.processes.executions.pausing import PAUSED, is_paused
from appliance.processes.models import Execution
from appliance.processes.startable import StartableVersion

from . import slots

HEAD_START_MS = 600_000
EXPIRED = "expired"
_EXPIRED_NEXT = "execute it again if it is still needed, or allow more time with expires_in"


def rank_of(at: int, priority: int) -> int:
    """The sort key of the queue, lowest first: one level of priority is worth ten minutes of waiting, so nothing starves."""
    return at - priority * HEAD_START_MS


@dataclass(frozen=True)
class AdmissionRequest:
    """A request to start an execution: its input, its due time (epoch ms) and how long after that it expires."""

    input: Mapping[str, Any]
    run_at: int | None
    expires_ms: int | None


@dataclass(frozen=True)
class Admission:
    """The initial state of an execution: `begins_at` is when it may start, `held` the reason why it has to wait, if any."""

    begins_at: int
    is_scheduled: bool
    wait_reason: str | None = None
    slot: Slot | None = None
    expires_at: int | None = None

    def waiting_for(self) -> dict[str, Any] | None:
        """The slot it waits for, as shown to callers; None when it waits for none."""
        return slot_to_view(self.slot) if self.slot is not None and self.wait_reason == slots.SLOT else None


def slot_to_view(slot: Slot) -> dict[str, Any]:
    return {"concurrency": {"key": slot.key, "limit": slot.limit}}


def admit(scope: TenantScope, process_id: str, version: int, request: AdmissionRequest, now: int) -> Admission:
    """Admits a new execution; raises ConcurrencyLimited when no slot is free and its process rejects in that case.

    With `cancel_running`, older executions of its key are cancelled, and the new one waits until they have stopped.
    """
    rules = load_rules(scope, process_id, version)
    is_scheduled = request.run_at is not None and request.run_at > now
    begins_at = request.run_at if is_scheduled and request.run_at is not None else now
    expires_at = _expiry_of(request, rules, begins_at)
    slot = slot_of(rules.concurrency, request.input) if rules.concurrency else None
    if slot is not None:
        db.require_exclusive()  # what holds the slots must not change before the new row is there
    if is_scheduled:
        return Admission(begins_at, True, None, slot, expires_at)
    if slot is not None and slot.behaviour == "reject" and not slots.is_free(scope, process_id, slot):
        key_text = Sentence(" with the key %(key)s", key=slot.key) if slot.key else ""
        raise ConcurrencyLimited(
            Sentence(
                "%(process_id)s runs at most %(limit)s at once%(which)s, and that many are running; try again later",
                process_id=process_id, limit=slot.limit, which=key_text,
            ),
            headers={"Retry-After": "1"},
        )
    return Admission(begins_at, False, _find_wait_reason(scope, process_id, slot), slot, expires_at)


def admit_at_once(
    scope: TenantScope, process_id: str, startable: StartableVersion, request: AdmissionRequest, now: int
) -> Admission | None:
    """Admits an execution that may start now whatever others do; None if its process limits concurrency or is paused.

    Reads only, so that it may be called outside a write.
    """
    if startable.is_paused:
        return None
    rules = rules_of(scope.tenant_id, process_id, startable.version, startable.draft_digest)
    if rules.concurrency is not None:
        return None
    return Admission(now, False, expires_at=_expiry_of(request, rules, now))


def _expiry_of(request: AdmissionRequest, rules: EntryRules, begins_at: int) -> int | None:
    expires_ms = request.expires_ms if request.expires_ms is not None else rules.expires_ms
    return None if expires_ms is None else begins_at + expires_ms


def _find_wait_reason(scope: TenantScope, process_id: str, slot: Slot | None, own_id: str = "") -> str | None:
    """The reason why a due execution has to wait, or None if it may start."""
    if slot is not None:
        if slot.behaviour == "cancel_running":
            _cancel_older(scope, process_id, slot, own_id)
        if not slots.is_free(scope, process_id, slot):
            return slots.SLOT
    return PAUSED if is_paused(scope, process_id) else None


def _cancel_older(scope: TenantScope, process_id: str, slot: Slot, own_id: str) -> None:
    older = slots.list_older(scope, process_id, slot, but=own_id)
    for execution_id in older[: max(0, len(older) - slot.limit + 1)]:
        row = scope.find(Execution, id=execution_id)
        if row is not None and row.finished_at is None:
            completion.cancel(scope, row)


def queue_due(tenant_id: str, execution_id: str, now: int) -> bool:
    """Queues a due execution and returns whether it may start at once; one that is not due is left unchanged."""
    rows = db.rows(
        "SELECT process_id, started_at, slot, slot_limit, slot_behaviour FROM execution WHERE tenant_id = ? AND id = ? "
        "AND status IN ('waiting', 'scheduled') AND next_run_at <= ?",
        (tenant_id, execution_id, now),
    )
    if not rows:
        return is_ready(tenant_id, execution_id)
    process_id, started_at, key, limit, behaviour = rows[0]
    scope = TenantScope(tenant_id, "system")
    slot = None if key is None else Slot(key, limit, behaviour)
    wait_reason = None if started_at is not None else _find_wait_reason(scope, process_id, slot, execution_id)
    waiting_for = db.dump_json(slot_to_view(slot)) if slot is not None and wait_reason == slots.SLOT else None
    db.execute(
        "UPDATE execution SET status = 'queued', enqueued_at = ?, next_run_at = NULL, wait_reason = ?, waiting_for = ? "
        "WHERE tenant_id = ? AND id = ?",
        (now, wait_reason, waiting_for, tenant_id, execution_id),
    )
    return wait_reason is None


def is_ready(tenant_id: str, execution_id: str) -> bool:
    """Whether the execution is queued and has nothing else to wait for."""
    return bool(
        db.rows(
            "SELECT 1 FROM execution WHERE tenant_id = ? AND id = ? AND status = 'queued' AND wait_reason IS NULL",
            (tenant_id, execution_id),
        )
    )


def list_expired(now: int, most: int) -> list[tuple[str, str]]:
    """(tenant, execution) of up to `most` executions that expired before they started; reads only."""
    rows = db.rows(
        "SELECT tenant_id, id FROM execution WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL "  # noqa: S608
        f"AND expires_at <= ? AND tenant_id NOT IN ({FENCED}) ORDER BY expires_at LIMIT ?",
        (now, most),
    )
    return [(row[0], row[1]) for row in rows]


def expire(tenant_id: str, execution_id: str, now: int) -> bool:
    """Ends an execution that did not start in time; False when it has started or finished meanwhile."""
    error = make_error("expired", "timeout", "it expired before it could start, so it has not run") | {"next": _EXPIRED_NEXT}
    changed = db.execute(
        "UPDATE execution SET status = 'expired', finished_at = ?, next_run_at = NULL, wait_reason = NULL, waiting_for = NULL, "
        "error = ?, failure_class = ?, failure_code = ?, fence = fence + 1 WHERE tenant_id = ? AND id = ? AND started_at IS NULL "
        "AND finished_at IS NULL AND expires_at <= ?",
        (now, dump_error(error), error["failure_class"], error["code"], tenant_id, execution_id, now),
    )
    if changed != 1:
        return False
    scope = TenantScope(tenant_id, "system")
    ((process_id, created_at),) = db.rows(
        "SELECT process_id, created_at FROM execution WHERE tenant_id = ? AND id = ?", (tenant_id, execution_id)
    )
    record_end(scope, completion.Child(execution_id, process_id, EXPIRED, error=error), max(0, now - created_at))
    return True


def record_end(scope: TenantScope, child: completion.Child, took_ms: int) -> None:
    """Records the end of an execution that never ran and does what follows from it."""
    completion.record_status(scope, child.execution_id, child.status, child.error)
    completion.close_execution(scope, child)
    tally.add(scope, "execution", f"{child.process_id}:{child.status}", took_ms)
