"""The SQL of agent runs: claims, fenced commits, wake-ups.  Functions that write must run inside `db.write`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.leases import LeaseTable
from appliance.core.scope import TenantScope
from appliance.tenants.grants import continued_access

from .journal import Entry, Journal
from .models import AgentRunRow

FINISHED = ("succeeded", "failed", "cancelled")
LEASES = LeaseTable(
    AgentRunRow, ("tenant_id", "id"), lease="lease_until", owner="owner", fence="fence", running="status = 'running'",
    on_claim="status = 'running', claims = claims + 1, next_run_at = NULL, waiting_for = NULL", on_reclaim="status = 'queued'",
    stops_with_tenant=True,
)


class RunCancelled(Exception):
    """A cancellation of the run was requested."""


@dataclass
class Usage:
    """A run's usage so far; `cost_nano` is in billionths of the currency's unit."""

    turns: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nano: int = 0


@dataclass
class Claim:
    """The right to drive a run while `fence` equals that of its row; `scope` acts as the run, within its starter's scopes.

    A run that a step of `execution_id` started is limited to the grants in `granted`.
    """

    scope: TenantScope
    run_id: str
    agent_id: str
    version: int
    fence: int
    claims: int
    input: Any
    started_at: int
    active_ms: int
    claimed_at: float
    used: Usage = field(default_factory=Usage)
    skills: list[dict[str, Any]] = field(default_factory=list)
    tainted_by: list[str] = field(default_factory=list)
    starter: str = ""
    execution_id: str | None = None
    granted: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.scope.tenant_id, self.run_id

    def active_now(self) -> int:
        """Milliseconds of active time so far."""
        return self.active_ms + int((clock.monotonic() - self.claimed_at) * 1000)


def claim(scope: TenantScope, row: Any, owner: str, lease_until: int) -> Claim | None:
    """Claim a run; returns None if another worker has claimed it since `row` was read."""
    started = row.started_at or clock.now_ms()
    changes = {"started_at": started}
    if not LEASES.claim((scope.tenant_id, row.id), row.fence, owner=owner, until=lease_until, changes=changes):
        return None
    limits = continued_access.limits_of(scope, row.actor)
    acting = TenantScope(
        scope.tenant_id, f"run:{row.id}", frozenset(row.scopes), row.request_id, limits=limits, started_by=row.actor
    )
    used = Usage(row.turns, row.tool_calls, row.input_tokens, row.output_tokens, row.cost_nano)
    return Claim(
        scope=acting, run_id=row.id, agent_id=row.agent_id, version=row.version, fence=row.fence + 1, claims=row.claims,
        input=row.input, started_at=started, active_ms=row.active_ms, claimed_at=clock.monotonic(), used=used,
        skills=list(row.skills), tainted_by=list(row.tainted_by), starter=row.actor, execution_id=row.execution_id,
        granted=row.granted,
    )  # fmt: skip


def renew_lease(claim: Claim, lease_until: int) -> bool:
    """Renew the lease; returns whether a cancel was requested.  LeaseLost."""
    return bool(LEASES.renew(claim.key, claim.fence, lease_until, returning="cancel_requested"))


def commit(claim: Claim, journal: Journal, entries: Sequence[Entry], changes: Mapping[str, Any] | None = None) -> list[Entry]:
    """Write the entries, the usage and `changes` of the row under the fence; returns the entries with their numbers.

    Resets the count of claims without progress.  LeaseLost.
    """
    used, now = claim.used, clock.now_ms()
    columns: dict[str, Any] = {
        "claims": 0, "turns": used.turns, "tool_calls": used.tool_calls, "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens, "cost_nano": used.cost_nano, "skills": claim.skills,
        "tainted_by": claim.tainted_by, "active_ms": claim.active_now(), **(changes or {}),
    }  # fmt: skip
    LEASES.update(claim.key, claim.fence, columns)
    numbered = [
        Entry(entry.kind, entry.turn, entry.call, entry.data, number, now) for number, entry in enumerate(entries, journal.last + 1)
    ]
    for entry in numbered:
        db.execute(
            "INSERT INTO agent_journal (tenant_id, run_id, number, kind, turn, call, data, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (claim.scope.tenant_id, claim.run_id, entry.number, entry.kind, entry.turn, entry.call, db.dump_json(entry.data), now),
        )
    return numbered


def load_entries(scope: TenantScope, run_id: str, after: int = 0, most: int = 100_000) -> list[Entry]:
    """The journal entries of a run with a number greater than `after`, in order."""
    rows = db.rows(
        "SELECT kind, turn, call, data, number, at FROM agent_journal WHERE tenant_id = ? AND run_id = ? AND number > ? "
        "ORDER BY number LIMIT ?",
        (scope.tenant_id, run_id, after, most),
    )
    return [Entry(kind, turn, call, json.loads(data), number, at) for kind, turn, call, data, number, at in rows]


def wake(tenant_id: str, run_id: str) -> bool:
    """Requeue a waiting run; returns whether it was waiting."""
    return bool(
        db.execute(
            "UPDATE agent_run SET status = 'queued', next_run_at = NULL WHERE tenant_id = ? AND id = ? AND status = 'waiting'",
            (tenant_id, run_id),
        )
    )


def move_durations(by_ms: int) -> None:
    """Shift pauses measured by this machine, and all leases, by a jump of the wall clock; see `processes.clock_jumps`."""
    pauses = "UPDATE agent_run SET next_run_at = next_run_at + ? WHERE status = 'waiting' AND measured_by = ?"
    db.execute(pauses, (by_ms, clock.boot_id()))
    LEASES.shift(by_ms)


def list_runs_waiting_for(scope: TenantScope, request_id: str) -> list[str]:
    """The ids of the runs that wait for this request to a person."""
    rows = db.rows("SELECT id, waiting_for FROM agent_run WHERE tenant_id = ? AND status = 'waiting'", (scope.tenant_id,))
    return [str(run_id) for run_id, text in rows if text and json.loads(text).get("request_id") == request_id]
