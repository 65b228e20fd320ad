"""Agent runs: create, read, list, cancel and purge them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import BudgetExceeded, ExecutionFinished, IdempotencyMismatch, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import withdraw_approval
from appliance.llm import NANO
from appliance.monitor import audit, delete_in_chunks
from appliance.tenants import FORBIDDEN_TO_AGENTS, RETENTION_MS

from . import step_updates, store, versions
from .journal import Entry
from .models import AgentJournalRow, AgentRunRow
from .step_updates import RunCompletion
from .store import FINISHED

MOST_INPUT_BYTES = 256 << 10
PURGE_CHUNK = 100
_HIDDEN = ("message",)


@dataclass(frozen=True)
class StepOrigin:
    """The process step that started a run: its unique place in an execution, and in `granted` the limits of what it may reach."""

    execution_id: str
    process_id: str
    step: str
    path: str
    iteration: str
    attempt: int
    granted: Mapping[str, Any]


@dataclass(frozen=True)
class RunRequest:
    """A request to start a run: `input` is a text or JSON; a repeated `token` returns the same run; `origin` is set by a step.

    `tainted_by` names the outside sources of the input.
    """

    input: Any
    version: int | None = None
    token: str = ""
    origin: "StepOrigin | None" = None
    tainted_by: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """The current state of a run.  `cost` is in the currency of the model's prices; times are epoch milliseconds."""

    id: str
    agent_id: str
    version: int
    status: str
    input: Any
    output: Any
    error: Mapping[str, Any] | None
    waiting_for: Mapping[str, Any] | None
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    skills: list[dict[str, Any]]
    tainted_by: list[str]
    started_by: str
    created_at: int
    started_at: int | None
    finished_at: int | None
    is_cancelling: bool
    origin: StepOrigin | None = None


def insert_run(scope: TenantScope, agent_id: str, request: RunRequest) -> tuple[Run, bool]:
    """Create a run and return it with whether it is new.  It acts within this actor's scopes.  Call inside a transaction.

    Raises NotFound, ValidationFailed; IdempotencyMismatch if the token was used with another input.
    """
    version = versions.get_version_number(scope, agent_id, request.version)
    now, origin = clock.now_ms(), request.origin
    if origin is not None and (run := find_step_run(scope, origin)) is not None:
        return run, False
    if request.token and (existing := scope.find(AgentRunRow, idempotency=request.token)) is not None:
        if now - existing.created_at < RETENTION_MS:
            if (existing.agent_id, existing.input) != (agent_id, request.input):
                raise IdempotencyMismatch("this Idempotency-Key was used with another body; take a new key for a new request")
            return _run(existing), False
        scope.update(AgentRunRow, idempotency=None).where(AgentRunRow.id == existing.id).execute()
    check_input(request.input)
    run_id = ids.new("run")
    scope.insert(
        AgentRunRow, id=run_id, agent_id=agent_id, version=version, status="queued", input=request.input, turns=0, tool_calls=0,
        input_tokens=0, output_tokens=0, cost_nano=0, skills=[], tainted_by=list(request.tainted_by),
        idempotency=request.token or None, created_at=now, active_ms=0, lease_until=0, fence=0, claims=0, cancel_requested=False,
        actor=scope.actor, scopes=sorted(scope.scopes - FORBIDDEN_TO_AGENTS), request_id=scope.request_id,
        **({} if origin is None else vars(origin)),
    )  # fmt: skip
    place = {} if origin is None else {"execution_id": origin.execution_id, "step": origin.step, "attempt": origin.attempt}
    audit.record(scope, "agent.run", agent_id, {"run": run_id, "version": version, **place})
    return get_run(scope, agent_id, run_id), True


def check_input(value: Any) -> None:
    """Raise ValidationFailed if the input is too large."""
    if len(db.dump_json(value).encode()) > MOST_INPUT_BYTES:
        raise ValidationFailed(
            Sentence(
                "the input is larger than %(most_input_bytes)s KB; refer to a document instead",
                most_input_bytes=MOST_INPUT_BYTES >> 10,
            ),
            pointer="/input",
        )


def find_step_run(scope: TenantScope, origin: StepOrigin) -> Run | None:
    """The run that this step attempt started, or None."""
    place = {name: getattr(origin, name) for name in ("execution_id", "path", "iteration", "attempt")}
    row = scope.find(AgentRunRow, **place)
    return None if row is None else _run(row)


def get_run(scope: TenantScope, agent_id: str, run_id: str) -> Run:
    """One run of this agent; raises NotFound."""
    return _run(scope.get(AgentRunRow, agent_id=agent_id, id=run_id))


def list_runs(scope: TenantScope, agent_id: str, page: PageRequest, status: str | None = None) -> Page[Run]:
    """The runs of an agent, newest first; raises NotFound."""
    versions.get_agent(scope, agent_id)
    query = scope.select(AgentRunRow).where(AgentRunRow.agent_id == agent_id)
    if status is not None:
        query = query.where(AgentRunRow.status == status)
    return paginate(query, page, {"created_at": AgentRunRow.created_at, "id": AgentRunRow.id}).map(_run)


def list_over_budget(scope: TenantScope, since: int, most: int = 50) -> list[Run]:
    """Runs of all agents that failed since `since` (epoch ms) because a budget was used up, newest first."""
    query = scope.select(AgentRunRow).where((AgentRunRow.status == "failed") & (AgentRunRow.finished_at >= since))
    failed = [_run(row) for row in query.order_by(AgentRunRow.finished_at.desc()).limit(most)]
    return [run for run in failed if run.error is not None and run.error.get("code") == BudgetExceeded.code]


def list_entries(scope: TenantScope, agent_id: str, run_id: str, page: PageRequest) -> Page[Entry]:
    """The journal entries of a run, in order; raises NotFound."""
    get_run(scope, agent_id, run_id)
    query = scope.select(AgentJournalRow).where(AgentJournalRow.run_id == run_id)
    entries = paginate(query, page, {"number": AgentJournalRow.number}, default="number", tie="number")
    return entries.map(lambda row: to_public_entry(Entry(row.kind, row.turn, row.call, row.data, row.number, row.at)))


def list_entries_after(scope: TenantScope, run_id: str, number: int) -> list[Entry]:
    """Up to 500 journal entries of a run after the entry `number`, in order."""
    return [to_public_entry(entry) for entry in store.load_entries(scope, run_id, number, 500)]


def to_public_entry(entry: Entry) -> Entry:
    """The entry without pydantic-ai's serialized message, which only the replay needs."""
    data = {name: value for name, value in entry.data.items() if name not in _HIDDEN}
    return Entry(entry.kind, entry.turn, entry.call, data, entry.number, entry.at)


def is_finished(scope: TenantScope, run_id: str) -> bool:
    """Whether the run is finished or deleted, so no more entries will follow."""
    rows = db.rows("SELECT status FROM agent_run WHERE tenant_id = ? AND id = ?", (scope.tenant_id, run_id))
    return not rows or rows[0][0] in FINISHED


def find_starter(scope: TenantScope, run_id: str) -> str:
    """The actor that started a run; raises NotFound."""
    return str(scope.get(AgentRunRow, id=run_id).actor)


def cancel_run(scope: TenantScope, agent_id: str, run_id: str) -> Run:
    """Cancel a run: at once if it waits, otherwise before its next step.  Raises NotFound; ExecutionFinished once it is over."""

    def cancel() -> Run:
        row = scope.get(AgentRunRow, agent_id=agent_id, id=run_id)
        if row.status in FINISHED:
            raise ExecutionFinished(Sentence("the run is already %(status)s", status=row.status))
        cancel_row(scope, row)
        return get_run(scope, agent_id, run_id)

    return db.write(cancel)


def cancel_row(scope: TenantScope, row: Any) -> None:
    """Cancel a run that is not finished.  Call inside a transaction."""
    if row.status == "running":
        scope.update(AgentRunRow, cancel_requested=True).where(AgentRunRow.id == row.id).execute()
    else:
        cancel_waiting(scope, row)
    audit.record(scope, "agent.cancel", row.agent_id, {"run": row.id})


def cancel_waiting(scope: TenantScope, row: Any) -> None:
    """End a run that is not active as cancelled, and withdraw its open request to people.  Call inside a transaction."""
    request_id = (row.waiting_for or {}).get("request_id")
    if request_id:
        withdraw_approval(scope, request_id, "the run that asked was cancelled")
    now = clock.now_ms()
    scope.update(
        AgentRunRow, status="cancelled", finished_at=now, next_run_at=None, waiting_for=None, owner=None, fence=row.fence + 1
    ).where(AgentRunRow.id == row.id).execute()
    last = db.rows(
        "SELECT COALESCE(max(number), 0) FROM agent_journal WHERE tenant_id = ? AND run_id = ?", (scope.tenant_id, row.id)
    )
    data = {"status": "cancelled", "by": scope.actor}
    scope.insert(AgentJournalRow, run_id=row.id, number=last[0][0] + 1, kind="ended", turn=row.turns, call=0, data=data, at=now)
    note_end(scope, row.agent_id, row.id, "cancelled")


def note_end(scope: TenantScope, agent_id: str, run_id: str, status: str, error: Mapping[str, Any] | None = None) -> None:
    """Record the end of a run in the audit trail (codes and numbers only), and notify the waiting step.

    Call inside the transaction that ends the run.
    """
    row = scope.get(AgentRunRow, agent_id=agent_id, id=run_id)
    why = {name: error[name] for name in ("code", "reason", "budget", "call_id") if error and name in error}
    used = {
        "turns": row.turns, "tool_calls": row.tool_calls, "input_tokens": row.input_tokens, "output_tokens": row.output_tokens,
        "cost": row.cost_nano / NANO,
    }  # fmt: skip
    audit.record(scope, "agent.end", agent_id, {"run": run_id, "status": status, **why, **used})
    if row.execution_id is not None:
        by = "" if scope.actor.startswith("run:") else scope.actor
        step_updates.complete_step(
            scope, RunCompletion(
                run_id=run_id, agent_id=agent_id, execution_id=row.execution_id, status=status, output=row.output, error=error,
                by=by, tainted_by=row.tainted_by,
            )
        )


def purge(before_ms: int) -> int:
    """Delete all tenants' runs that finished before `before_ms` (epoch ms), with their journals; returns how many."""
    return delete_in_chunks(partial(_purge_some, before_ms))


def _purge_some(before_ms: int, most: int = PURGE_CHUNK) -> int:
    rows = db.rows("SELECT tenant_id, id FROM agent_run WHERE finished_at < ? ORDER BY finished_at LIMIT ?", (before_ms, most))
    for tenant_id, run_id in rows:
        db.execute("DELETE FROM agent_run WHERE tenant_id = ? AND id = ?", (tenant_id, run_id))
    return len(rows)


def _run(row: Any) -> Run:
    return Run(
        id=row.id, agent_id=row.agent_id, version=row.version, status=row.status, input=row.input, output=row.output,
        error=row.error, waiting_for=row.waiting_for, turns=row.turns, tool_calls=row.tool_calls, input_tokens=row.input_tokens,
        output_tokens=row.output_tokens, cost=row.cost_nano / NANO, skills=row.skills, tainted_by=row.tainted_by,
        started_by=row.actor, created_at=row.created_at, started_at=row.started_at, finished_at=row.finished_at,
        is_cancelling=bool(row.cancel_requested and row.status == "running"), origin=_origin(row),
    )  # fmt: skip


def _origin(row: Any) -> StepOrigin | None:
    if row.execution_id is None:
        return None
    return StepOrigin(
        execution_id=row.execution_id, process_id=row.process_id, step=row.step, path=row.path, iteration=row.iteration,
        attempt=row.attempt, granted=row.granted,
    )
