"""The rows of suspended steps: pending calls, their answers, and stored VMs.  Functions that write run inside `db.write`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.sandbox import Snapshot

from .store import Claim, add_event

WaitKind = Literal["approval", "input", "event", "child", "timer", "model", "agent"]
RunKey = tuple[str, str, int]
DETAIL = ("approval_id", "title", "reason")
_COLUMNS = "path, iteration, attempt, call, kind, token, name, due_at, ok, answer, answered_at, detail, measured_by"
_OF_RUN = "tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ? AND attempt = ?"


@dataclass(frozen=True)
class PendingCall:
    """A call that waits: for what (`kind`, `name`), answered under which `token`, until when at the latest (`due_at`).

    `ok` is None while there is no answer; `detail` is what the awaited agent run itself is waiting for.  `measured_by`: the
    boot id of the machine that measures the duration until `due_at`; None if that is a point in time.
    """

    path: str
    iteration: str
    attempt: int
    call: int
    kind: str
    token: str
    name: str
    due_at: int
    ok: bool | None = None
    answer: Any = None
    answered_at: int | None = None
    detail: dict[str, Any] | None = None
    measured_by: str | None = None


@dataclass(frozen=True)
class StoredVM:
    """A suspended VM; `position` counts the answers the code had received, `used_ms` is how long it has run."""

    snapshot: Snapshot
    position: int
    used_ms: int


def add_call(claim: Claim, pending: PendingCall) -> None:
    """Insert a pending call."""
    db.execute(
        "INSERT INTO pending_call (tenant_id, execution_id, path, iteration, attempt, call, kind, token, name, due_at, created_at, "
        "measured_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            claim.scope.tenant_id, claim.execution_id, pending.path, pending.iteration, pending.attempt, pending.call,
            pending.kind, pending.token, pending.name, pending.due_at, clock.now_ms(), pending.measured_by,
        ),
    )  # fmt: skip


def delete_answer(claim: Claim, run_key: RunKey, call: int) -> None:
    """Delete the answer of a call that has to wait again."""
    db.execute(
        f"DELETE FROM pending_call WHERE {_OF_RUN} AND call = ? AND ok IS NOT NULL",  # noqa: S608 our own names
        (claim.scope.tenant_id, claim.execution_id, *run_key, call),
    )


def load_calls(scope: TenantScope, execution_id: str, run_key: RunKey) -> dict[int, PendingCall]:
    """The pending calls of a step run, answered or not, by their number."""
    sql = f"SELECT {_COLUMNS} FROM pending_call WHERE {_OF_RUN}"  # noqa: S608 our own names
    return {row[3]: _pending(row) for row in db.rows(sql, (scope.tenant_id, execution_id, *run_key))}


def open_calls(scope: TenantScope, execution_id: str) -> list[PendingCall]:
    """The unanswered calls of an execution, earliest due first."""
    sql = f"SELECT {_COLUMNS} FROM pending_call WHERE tenant_id = ? AND execution_id = ? AND ok IS NULL ORDER BY due_at, path, call"  # noqa: S608
    return [_pending(row) for row in db.rows(sql, (scope.tenant_id, execution_id))]


def calls_of_step(scope: TenantScope, execution_id: str, path: str, iteration: str) -> list[PendingCall]:
    """The pending calls of all attempts of a step run, answered or not."""
    sql = f"SELECT {_COLUMNS} FROM pending_call WHERE tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ?"  # noqa: S608
    return [_pending(row) for row in db.rows(sql, (scope.tenant_id, execution_id, path, iteration))]


def find_call(scope: TenantScope, execution_id: str, token: str) -> PendingCall | None:
    """The call of an execution with this token, or None."""
    sql = f"SELECT {_COLUMNS} FROM pending_call WHERE tenant_id = ? AND execution_id = ? AND token = ?"  # noqa: S608
    rows = db.rows(sql, (scope.tenant_id, execution_id, token))
    return _pending(rows[0]) if rows else None


def _pending(row: tuple[Any, ...]) -> PendingCall:
    ok = None if row[8] is None else bool(row[8])
    answer = None if row[9] is None else json.loads(row[9])
    detail = None if row[11] is None else json.loads(row[11])
    return PendingCall(
        path=row[0], iteration=row[1], attempt=row[2], call=row[3], kind=row[4], token=row[5], name=row[6], due_at=row[7], ok=ok,
        answer=answer, answered_at=row[10], detail=detail, measured_by=row[12],
    )


def answer_call(scope: TenantScope, token: str, ok: bool, value: Any) -> bool:
    """Answer the call with this token and wake its execution; False if no call waits for it (any more)."""
    now = clock.now_ms()
    if not save_answer(scope, token, ok, value):
        return False
    row = db.rows(
        "SELECT execution_id, path, iteration FROM pending_call WHERE tenant_id = ? AND token = ?", (scope.tenant_id, token)
    )[0]
    db.execute(
        "UPDATE step_run SET next_run_at = ? WHERE tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ? "
        "AND status = 'waiting'",
        (now, scope.tenant_id, *row),
    )
    db.execute(
        "UPDATE execution SET next_run_at = ? WHERE tenant_id = ? AND id = ? AND status = 'waiting'",
        (now, scope.tenant_id, row[0]),
    )
    db.after_commit(lambda: hub.publish(ExecutionAnswered(scope.tenant_id, row[0])))
    return True


def answer_profile(scope: TenantScope, slug: str) -> list[str]:
    """Inside the write that creates an LLM profile: answer the calls that wait for it; returns their tokens."""
    sql = "SELECT token FROM pending_call WHERE tenant_id = ? AND kind = 'model' AND name = ? AND ok IS NULL"
    tokens = [row[0] for row in db.rows(sql, (scope.tenant_id, slug))]
    for token in tokens:
        answer_call(scope, token, True, {"profile": slug})
    return tokens


def save_detail(scope: TenantScope, token: str, detail: Mapping[str, Any] | None) -> None:
    """Inside a write: record what the run awaited under `token` is itself waiting for (`approval_id`, `title`, `reason`), or
    None if it continues."""
    text = None if detail is None else db.dump_json(detail)
    condition = "tenant_id = ? AND token = ? AND ok IS NULL"
    if db.execute(f"UPDATE pending_call SET detail = ? WHERE {condition}", (text, scope.tenant_id, token)) != 1:  # noqa: S608
        return
    ((execution_id, stored),) = db.rows(
        "SELECT execution_id, waiting_for FROM pending_call JOIN execution ON execution.tenant_id = pending_call.tenant_id "
        "AND execution.id = pending_call.execution_id WHERE pending_call.tenant_id = ? AND token = ?",
        (scope.tenant_id, token),
    )
    if stored is None:  # the execution is running, and writes this when it waits again
        return
    waiting_for = json.loads(stored)
    for each in waiting_for.get("waits", ()):
        if each.get("run_id") == token:
            for name in DETAIL:
                each.pop(name, None)
            each.update(detail or {})
    changed = db.execute(
        "UPDATE execution SET waiting_for = ? WHERE tenant_id = ? AND id = ? AND status = 'waiting'",
        (db.dump_json(waiting_for), scope.tenant_id, execution_id),
    )
    if changed:
        add_event(scope, execution_id, "waiting", {"status": "waiting"})


def save_answer(scope: TenantScope, token: str, ok: bool, value: Any) -> bool:
    """Store the answer of the call with this token; False if it already has one."""
    changed = db.execute(
        "UPDATE pending_call SET ok = ?, answer = ?, answered_at = ? WHERE tenant_id = ? AND token = ? AND ok IS NULL",
        (int(ok), db.dump_json(value), clock.now_ms(), scope.tenant_id, token),
    )
    return changed == 1


def save_vm(claim: Claim, run_key: RunKey, stored: StoredVM, sealer: Sealer) -> None:
    """Store the VM of a step run, replacing an earlier one."""
    snapshot = stored.snapshot
    db.execute(
        "INSERT INTO suspended_step (tenant_id, execution_id, path, iteration, attempt, template, position, pending, used_ms, "
        "sealed, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, execution_id, path, iteration) DO UPDATE SET "
        "attempt = excluded.attempt, template = excluded.template, position = excluded.position, pending = excluded.pending, "
        "used_ms = excluded.used_ms, sealed = excluded.sealed, created_at = excluded.created_at",
        (
            claim.scope.tenant_id, claim.execution_id, *run_key, snapshot.template, stored.position,
            db.dump_json(list(snapshot.pending)), stored.used_ms,
            sealer.seal(snapshot.data, _context(claim.scope, claim.execution_id, run_key)),
            clock.now_ms(),
        ),
    )  # fmt: skip


def load_vm(scope: TenantScope, execution_id: str, run_key: RunKey, sealer: Sealer) -> StoredVM | None:
    """The stored VM of a step run; None if it was not suspended.  ConfigInvalid if it cannot be decrypted or read."""
    rows = db.rows(
        f"SELECT template, position, pending, used_ms, sealed FROM suspended_step WHERE {_OF_RUN}",  # noqa: S608 our own names
        (scope.tenant_id, execution_id, *run_key),
    )
    if not rows:
        return None
    template, position, pending, used_ms, sealed = rows[0]
    data = sealer.open(bytes(sealed), _context(scope, execution_id, run_key))
    try:
        calls = tuple(json.loads(pending))
    except (ValueError, TypeError) as error:
        raise ConfigInvalid("the stored state of this step is damaged; retry the step from its start") from error
    return StoredVM(Snapshot(template, data, calls), position, used_ms)


def _context(scope: TenantScope, execution_id: str, run_key: RunKey) -> str:
    return "/".join((scope.tenant_id, "vm", execution_id, *map(str, run_key)))


def drop_step(scope: TenantScope, execution_id: str, path: str, iteration: str) -> None:
    """Delete the stored VM and the pending calls of a finished step run."""
    for table in ("suspended_step", "pending_call"):
        db.execute(
            f"DELETE FROM {table} WHERE tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ?",  # noqa: S608
            (scope.tenant_id, execution_id, path, iteration),
        )


def drop_execution(scope: TenantScope, execution_id: str) -> None:
    """Delete the stored VMs and the pending calls of a finished execution."""
    for table in ("suspended_step", "pending_call"):
        mine = (scope.tenant_id, execution_id)
        if db.rows(f"SELECT 1 FROM {table} WHERE tenant_id = ? AND execution_id = ? LIMIT 1", mine):  # noqa: S608
            db.execute(f"DELETE FROM {table} WHERE tenant_id = ? AND execution_id = ?", mine)  # noqa: S608


def templates_in_use() -> set[str]:
    """The sandbox templates that stored VMs of any tenant depend on."""
    return {row[0] for row in db.rows("SELECT DISTINCT template FROM suspended_step")}


@dataclass(frozen=True)
class ExecutionAnswered:
    """What an execution waited for has come, and it is due.  Published after the commit, in this process alone; the sweeper finds
    what other processes answered."""

    tenant_id: str
    execution_id: str


@dataclass(frozen=True)
class CancelRequested:
    """An execution is to be cancelled.  Published after the commit, in this process alone; the heartbeat of the worker that runs
    it notices otherwise."""

    execution_id: str
