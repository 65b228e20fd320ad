"""The SQL of the runner's hot path: claims, fenced commits, step runs, journal and events.  All inside `db.write`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.sentence_fields import dump_error, load_error
from appliance.core.leases import LeaseTable
from appliance.core.scope import TenantScope
from appliance.processes.models import Execution

from .decide import StepRun
from .deferred import Columns, DeferredRow

OPEN = ("scheduled", "queued", "running", "waiting", "cancelling")
FINISHED = ("succeeded", "failed", "cancelled", "timed_out", "expired")
FINAL_LINE = 0  # the number of a journal's closing line; calls count from 1
LEASES = LeaseTable(
    Execution, ("tenant_id", "id"), lease="lease_until", owner="owner", fence="fence",
    running="status IN ('running', 'cancelling') AND finished_at IS NULL",
    on_claim="status = CASE WHEN cancel_requested = 1 THEN 'cancelling' ELSE 'running' END, claims = claims + 1, "
    "wait_reason = NULL, waiting_for = NULL, next_run_at = NULL",
    on_reclaim="status = CASE WHEN status = 'cancelling' THEN status ELSE 'queued' END, next_run_at = NULL, wait_reason = NULL",
    stops_with_tenant=True,
)  # fmt: skip
_FIND = "SELECT 1 FROM execution WHERE tenant_id = ? AND id = ?"


@dataclass(frozen=True)
class Claim:
    """The right to run one execution; valid while `fence` equals that of the row.  `deferred`: the row is not inserted yet."""

    scope: TenantScope
    execution_id: str
    process_id: str
    version: int
    fence: int
    input: Any
    label: str | None
    created_at: int
    started_at: int
    active_ms: int
    cancel_requested: bool
    request_id: str
    claims: int
    compensation: Mapping[str, Any] | None = None
    handles: str | None = None
    trace: str = ""
    deferred: DeferredRow | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        return self.scope.tenant_id, self.execution_id


@dataclass(frozen=True)
class JournalEntry:
    """One host call of a step run and its answer.  `position` is the order in which the code received the answers, -1 for a
    call that was sent and has no answer yet.  The line with the number CLOSING is not a call, see `final_entries`."""

    call: int
    position: int
    method: str
    args: Any
    ok: bool
    answer: Any
    clock: Sequence[int]


def check_fence(claim: Claim) -> None:
    """LeaseLost unless the claim is still valid, and until the commit; every write under a claim starts with this check.

    So what an execution has is written by one at a time, in shared writes too.
    """
    if not _insert_deferred(claim):
        LEASES.check(claim.key, claim.fence)


def _insert_deferred(claim: Claim) -> bool:
    """Insert the claim's row if it is deferred; whether this very write has."""
    return claim.deferred is not None and claim.deferred.insert()


def insert_ended(claim: Claim, status: str, active_ms: int, changes: Columns) -> bool:
    """Insert a deferred row as the execution ends, instead of inserting and settling it; False if it is not deferred (any more)."""
    ended = {**changes, "status": status, "active_ms": active_ms, "claims": 0, "owner": None}
    return claim.deferred is not None and claim.deferred.insert(ended)


def record(claim: Claim) -> None:
    """Outside a write: make a deferred row durable, before anything that is more than a read leaves its own rows."""
    if claim.deferred is not None and not claim.deferred.is_durable:
        db.write(lambda: check_fence(claim), is_shared=True)


def renew_lease(claim: Claim, lease_until: int, active_ms: int) -> bool:
    """Renew the lease under the fence; answers whether a cancel was requested.  LeaseLost.

    Unlike `record_progress` it does not reset the number of claims: being alive is not progress.
    """
    _insert_deferred(claim)
    return bool(LEASES.renew(claim.key, claim.fence, lease_until, {"active_ms": active_ms}, returning="cancel_requested"))


def record_progress(claim: Claim, lease_until: int, active_ms: int) -> bool:
    """Renew the lease and reset the number of claims; answers whether a cancel was requested.  LeaseLost."""
    _insert_deferred(claim)
    changes = {"claims": 0, "active_ms": active_ms}
    return bool(LEASES.renew(claim.key, claim.fence, lease_until, changes, returning="cancel_requested"))


def settle(claim: Claim, status: str, active_ms: int, changes: Mapping[str, Any]) -> None:
    """Release the claim with a new status (finished or waiting).  LeaseLost."""
    _insert_deferred(claim)
    LEASES.settle(claim.key, claim.fence, {"status": status, "active_ms": active_ms, "claims": 0, **changes})


def earliest_due(claim: Claim) -> int | None:
    """When the first of the execution's waiting steps is due; None if none is."""
    rows = db.rows(
        "SELECT min(next_run_at) FROM step_run WHERE tenant_id = ? AND execution_id = ? "
        "AND status <> 'succeeded' AND status IN ('waiting', 'retrying')",  # the first condition is that of an index
        (claim.scope.tenant_id, claim.execution_id),
    )
    due: int | None = rows[0][0]
    return due


def save_run(claim_scope: TenantScope, execution_id: str, run: StepRun) -> None:
    """Insert or replace one step run; (execution, path, iteration) is unique."""
    db.send(
        "INSERT INTO step_run (tenant_id, execution_id, path, iteration, step, kind, status, attempt, result_source, state, "
        "input, output, error, started_at, finished_at, next_run_at, undo_order, measured_by) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, execution_id, path, iteration) DO UPDATE SET status = excluded.status, "
        "attempt = excluded.attempt, result_source = excluded.result_source, state = excluded.state, input = excluded.input, "
        "output = excluded.output, error = excluded.error, started_at = excluded.started_at, "
        "finished_at = excluded.finished_at, next_run_at = excluded.next_run_at, undo_order = excluded.undo_order, "
        "measured_by = excluded.measured_by",
        (
            claim_scope.tenant_id, execution_id, run.path, run.iteration, run.step, run.kind, run.status, run.attempt,
            run.result_source, _json(run.state), _json(run.input), _json(run.output), _error(run.error), run.started_at,
            run.finished_at, run.next_run_at, run.undo_order, run.measured_by,
        ),
    )  # fmt: skip


def close_runs(scope: TenantScope, execution_id: str, blocks: str) -> None:
    """Close the open step runs of an execution that ends: blocks with the status `blocks`, other steps as cancelled."""
    db.execute(
        "UPDATE step_run SET status = CASE WHEN kind IN ('branch', 'for_each', 'parallel') THEN ? ELSE 'cancelled' END, "
        "finished_at = ?, next_run_at = NULL "
        "WHERE tenant_id = ? AND execution_id = ? AND status <> 'succeeded' AND status NOT IN ('skipped', 'failed')",
        (blocks, clock.now_ms(), scope.tenant_id, execution_id),
    )


def close_enclosing(scope: TenantScope, execution_id: str, path: str, iteration: str) -> None:
    """Close the blocks around the step at `path`, which has ended the execution, as succeeded."""
    parts, indexes = path.split("/"), iteration.split(".")
    for depth in range(1, len(parts)):
        for loop_depth in range(len(indexes) + 1):
            db.execute(
                "UPDATE step_run SET status = 'succeeded', finished_at = ? WHERE tenant_id = ? AND execution_id = ? AND path = ? "
                "AND iteration = ? AND status = 'running'",
                (clock.now_ms(), scope.tenant_id, execution_id, "/".join(parts[:depth]), ".".join(indexes[:loop_depth])),
            )


def has_undoable(scope: TenantScope, execution_id: str) -> bool:
    """Whether the execution has a finished step that can be undone."""
    sql = "SELECT 1 FROM step_run WHERE tenant_id = ? AND execution_id = ? AND undo_order IS NOT NULL LIMIT 1"
    return bool(db.rows(sql, (scope.tenant_id, execution_id)))


def start_compensation(claim: Claim, lease_until: int, compensation: Mapping[str, Any]) -> None:
    """Record progress and the decided end; from now on the execution only runs compensation.  LeaseLost."""
    _insert_deferred(claim)
    LEASES.renew(
        claim.key, claim.fence, lease_until, {"claims": 0, "active_ms": compensation["from_ms"], "aftermath": compensation}
    )


def release(claim: Claim) -> None:
    """Release the execution, so that any worker can claim it at once."""
    _insert_deferred(claim)
    LEASES.release(claim.key, claim.fence)


def load_runs(scope: TenantScope, execution_id: str) -> list[StepRun]:
    """Every step run of an execution."""
    rows = db.rows(
        "SELECT path, iteration, step, kind, status, attempt, state, output, error, next_run_at, result_source, input, "
        "started_at, finished_at, undo_order, measured_by FROM step_run WHERE tenant_id = ? AND execution_id = ?",
        (scope.tenant_id, execution_id),
    )
    return [_run(row) for row in rows]


def _run(r: tuple[Any, ...]) -> StepRun:
    state, output, error, run_input = _load(r[6]), _load(r[7]), _load_error(r[8]), _load(r[11])
    return StepRun(
        path=r[0], iteration=r[1], step=r[2], kind=r[3], status=r[4], attempt=r[5], state=state, output=output, error=error,
        next_run_at=r[9], result_source=r[10], input=run_input, started_at=r[12], finished_at=r[13], undo_order=r[14],
        measured_by=r[15],
    )


def append_journal(claim: Claim, run_key: tuple[str, str, int], entries: Sequence[JournalEntry]) -> None:
    """Record host calls of (path, iteration, attempt); an answer completes the entry written when its call was sent."""
    now = clock.now_ms()
    for entry in entries:
        db.send(
            "INSERT INTO journal (tenant_id, execution_id, path, iteration, attempt, call, position, method, args, ok, answer, "
            "clock, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (tenant_id, execution_id, path, iteration, attempt, call) DO UPDATE SET position = excluded.position, "
            "ok = excluded.ok, answer = excluded.answer, at = excluded.at",
            (
                claim.scope.tenant_id, claim.execution_id, *run_key, entry.call, entry.position, entry.method,
                db.dump_json(entry.args), int(entry.ok), _json(entry.answer), db.dump_json(list(entry.clock)), now,
            ),
        )  # fmt: skip


def add_clock(claim: Claim, run_key: tuple[str, str, int], values: Sequence[int]) -> None:
    """Append clock values read after the last call to that call's entry, so that their order is preserved."""
    run_values = (claim.scope.tenant_id, claim.execution_id, *run_key)
    where = "tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ? AND attempt = ?"
    rows = db.rows(f"SELECT call, clock FROM journal WHERE {where} ORDER BY call DESC LIMIT 1", run_values)  # noqa: S608
    number, stored = rows[0]
    text = db.dump_json([*json.loads(stored), *values])
    db.execute(f"UPDATE journal SET clock = ? WHERE {where} AND call = ?", (text, *run_values, number))  # noqa: S608


def load_journal(scope: TenantScope, execution_id: str, run_key: tuple[str, str, int]) -> list[JournalEntry]:
    """The recorded host calls of (path, iteration, attempt) in the order of their answers."""
    return [entry for entry in load_lines(scope, execution_id, run_key) if entry.call != FINAL_LINE]


def load_lines(scope: TenantScope, execution_id: str, run_key: tuple[str, str, int]) -> list[JournalEntry]:
    """The same including the closing line, which exists once the attempt has finished."""
    rows = db.rows(
        "SELECT call, position, method, args, ok, answer, clock FROM journal WHERE tenant_id = ? AND execution_id = ? "
        "AND path = ? AND iteration = ? AND attempt = ? ORDER BY position",
        (scope.tenant_id, execution_id, *run_key),
    )
    return [JournalEntry(
        call=r[0], position=r[1], method=r[2], args=json.loads(r[3]), ok=bool(r[4]), answer=_load(r[5]), clock=json.loads(r[6]),
    ) for r in rows]


def lock_execution(scope: TenantScope, execution_id: str) -> None:
    """Inside a write: nobody else changes the row from here to the commit; a worker that ends it now has done so before."""
    if lock := db.row_lock():
        db.rows(f"{_FIND}{lock}", (scope.tenant_id, execution_id))


def add_event(scope: TenantScope, execution_id: str, kind: str, data: dict[str, Any]) -> None:
    """One event for followers of this execution."""
    db.send(
        "INSERT INTO execution_event (tenant_id, execution_id, at, type, data) VALUES (?, ?, ?, ?, ?)",
        (scope.tenant_id, execution_id, clock.now_ms(), kind, db.dump_json(data)),
    )


def add_step_event(claim: Claim, run: StepRun, attempt: int) -> None:
    """An event with the status of a step run after this attempt."""
    data = {"step": run.step, "path": run.path, "iteration": run.iteration, "status": run.status, "attempt": attempt}
    add_event(claim.scope, claim.execution_id, "step", data)


def _json(value: Any) -> str | None:
    return None if value is None else db.dump_json(value)


def _error(error: Any) -> str | None:
    return None if error is None else dump_error(error)


def _load_error(text: str | None) -> Any:
    return None if text is None else load_error(text)


def _load(text: str | None) -> Any:
    return None if text is None else json.loads(text)
