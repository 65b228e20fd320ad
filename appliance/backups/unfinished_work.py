"""Ends the unfinished work of one tenant: in the database when it is closed or reset, in the file of its export before that is
imported."""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.database.bulk.short_writes import Permission, Rows
from appliance.core.scope import TenantScope


@dataclass(frozen=True)
class Reason:
    """Why work ends, and what its owner can do; whether that is to retry it."""

    message: str
    next: str
    is_retryable: bool


_IMPORTED = Reason(
    "The tenant was imported from an export; what was under way stayed where it came from.",
    "Retry it here if it is to run here.", is_retryable=True,
)  # fmt: skip
_CLEARED = Reason(
    "The tenant is being reset or deleted, which ends what was under way.",
    "Start it again after a reset, if the tenant has it then.", is_retryable=False,
)  # fmt: skip
_ENDED = "('succeeded', 'failed', 'cancelled', 'timed_out', 'expired', 'skipped')"
_RELEASE = "owner = NULL, next_run_at = NULL, waiting_for = NULL, fence = fence + 1"


@dataclass(frozen=True)
class _Unfinished:
    """Unfinished work of a tenant in one table, and the assignments that end it, with named parameters.

    `conditions`: it matches one of these, each of which an index finds, and no row that has ended.  `claimed`: the condition of
    what a process works on now, which is no more than all processes have threads.
    """

    table: str
    assignments: str
    conditions: tuple[str, ...]
    claimed: str = ""


# What processes continue.
_RUNS = (
    _Unfinished(
        "execution",
        f"status = 'cancelled', error = :error, finished_at = :now, wait_reason = NULL, {_RELEASE}",
        tuple(
            f"status = '{each}' AND finished_at IS NULL" for each in ("scheduled", "queued", "running", "waiting", "cancelling")
        ),
        "status IN ('running', 'cancelling') AND finished_at IS NULL AND owner IS NOT NULL",
    ),
    _Unfinished(
        "agent_run",
        f"status = 'cancelled', error = :error, finished_at = :now, {_RELEASE}",
        tuple(f"status = '{each}'" for each in ("queued", "running", "waiting")),
        "status = 'running' AND owner IS NOT NULL",
    ),
    _Unfinished(
        "approval",
        "status = 'cancelled', closed_at = :now",
        ("status = 'pending'", "status = 'approved' AND used_at IS NULL AND action_digest IS NOT NULL"),
    ),
    _Unfinished(
        "integration_call",
        "status = 'failed', outcome = CASE WHEN status = 'running' THEN 'unknown' ELSE 'not_done' END, error = :call_error, "
        "finished_at = :now",
        ("status = 'queued'", "status = 'running'"),
        "status = 'running'",
    ),
    _Unfinished("webhook_delivery", "status = 'failed', next_try_at = NULL, finished_at = :now", ("status = 'pending'",)),
    _Unfinished("firing", "status = 'failed', error = :why, next_try_at = NULL", ("status = 'pending'",)),
)
# The parts of these, and what only the file of an export needs.
_PARTS = (
    (
        "UPDATE step_run SET status = 'cancelled', finished_at = :now, next_run_at = NULL "  # noqa: S608
        f"WHERE tenant_id = :tenant AND status NOT IN {_ENDED}"
    ),
    "UPDATE alert_event SET told_at = :now WHERE tenant_id = :tenant AND told_at IS NULL",
)
_PARAMETER = re.compile(r":([a-z_]+)")


def stop_claimed(scope: TenantScope) -> None:
    """Inside the write that closes a tenant or begins its reset: cancel what processes work on now: they write nothing more.

    The rest can only go on by a claim, and nobody claims work of such a tenant; `stop_runs` cancels it.
    """
    values = _parameters(scope, _CLEARED)
    for each in _RUNS:
        if each.claimed:
            sql = f"UPDATE {each.table} SET {each.assignments} WHERE tenant_id = :tenant AND {each.claimed}"  # noqa: S608
            db.execute(_PARAMETER.sub("?", sql), _values_in(sql, values))


def stop_runs(scope: TenantScope, permission: Permission) -> None:
    """Cancel in short writes what a tenant has begun that is closed or being reset."""
    values = _parameters(scope, _CLEARED)
    for each in _RUNS:
        assignments = _PARAMETER.sub("?", each.assignments)
        for condition in each.conditions:
            rows = Rows(each.table, f"tenant_id = ? AND {condition}", (scope.tenant_id,))
            short_writes.change(permission, rows, assignments, _values_in(each.assignments, values), 0)


def stop_in_file(scope: TenantScope, file: sqlite3.Connection) -> None:
    """Cancel the same, and its parts, in the file of an export."""
    values = _parameters(scope, _IMPORTED)
    for each in _RUNS:
        unfinished = " OR ".join(f"({condition})" for condition in each.conditions)
        sql = f"UPDATE {each.table} SET {each.assignments} WHERE tenant_id = :tenant AND ({unfinished})"  # noqa: S608
        file.execute(sql, values)
    for sql in _PARTS:
        file.execute(sql, values)


def _values_in(sql: str, values: Mapping[str, str | int]) -> tuple[str | int, ...]:
    return tuple(values[name] for name in _PARAMETER.findall(sql))


def _parameters(scope: TenantScope, reason: Reason) -> Mapping[str, str | int]:
    error = {
        "code": "conflict", "failure_class": "system", "message": reason.message, "retryable": reason.is_retryable,
        "next": reason.next,
    }  # fmt: skip
    call_error = {"class": "system_error", "message": reason.message, "details": {}}
    return {
        "now": clock.now_ms(), "tenant": scope.tenant_id, "why": reason.message, "error": db.dump_json(error),
        "call_error": db.dump_json(call_error),
    }  # fmt: skip
