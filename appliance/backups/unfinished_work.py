"""Ends the unfinished work of one tenant: in the database when it is closed, in the file of its export before that is imported."""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
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
# The statements that end unfinished work of one tenant, with named parameters: what processes continue, and the rest.
_RUNS = (
    (
        f"UPDATE execution SET status = 'cancelled', error = :error, finished_at = :now, wait_reason = NULL, {_RELEASE} "  # noqa: S608
        f"WHERE tenant_id = :tenant AND finished_at IS NULL AND status NOT IN {_ENDED}"
    ),
    (
        f"UPDATE agent_run SET status = 'cancelled', error = :error, finished_at = :now, {_RELEASE} "  # noqa: S608
        f"WHERE tenant_id = :tenant AND status NOT IN {_ENDED}"
    ),
    (
        "UPDATE approval SET status = 'cancelled', closed_at = :now WHERE tenant_id = :tenant "
        "AND (status = 'pending' OR (status = 'approved' AND used_at IS NULL AND action_digest IS NOT NULL))"
    ),
    (
        "UPDATE integration_call SET status = 'failed', outcome = CASE WHEN status = 'running' THEN 'unknown' ELSE 'not_done' END, "
        "error = :call_error, finished_at = :now WHERE tenant_id = :tenant AND status IN ('queued', 'running')"
    ),
    (
        "UPDATE webhook_delivery SET status = 'failed', next_try_at = NULL, finished_at = :now WHERE tenant_id = :tenant "
        "AND status = 'pending'"
    ),
    "UPDATE firing SET status = 'failed', error = :why, next_try_at = NULL WHERE tenant_id = :tenant AND status = 'pending'",
)
_PARTS = (
    (
        "UPDATE step_run SET status = 'cancelled', finished_at = :now, next_run_at = NULL "  # noqa: S608
        f"WHERE tenant_id = :tenant AND status NOT IN {_ENDED}"
    ),
    "UPDATE alert_event SET told_at = :now WHERE tenant_id = :tenant AND told_at IS NULL",
)
_PARAMETER = re.compile(r":([a-z_]+)")


def stop_runs(scope: TenantScope) -> None:
    """Inside the write that closes a tenant or begins its reset: cancel what it has begun, so that no process continues it."""
    values = _parameters(scope, _CLEARED)
    for statement in _RUNS:
        db.execute(_PARAMETER.sub("?", statement), tuple(values[name] for name in _PARAMETER.findall(statement)))


def stop_in_file(scope: TenantScope, file: sqlite3.Connection) -> None:
    """Cancel the same, and its parts, in the file of an export."""
    for statement in (*_RUNS, *_PARTS):
        file.execute(statement, _parameters(scope, _IMPORTED))


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
