"""Cancels an imported tenant's unfinished work and replaces its secrets, which were sealed with another key."""

import re
from collections.abc import Callable, Mapping

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import make_secret, seal_context

WHY = "The tenant was imported from an export; what was under way stayed where it came from."
_ERROR = {
    "code": "conflict",
    "failure_class": "system",
    "message": WHY,
    "retryable": True,
    "next": "Retry it here if it is to run here.",
}
_CALL_ERROR = {"class": "system_error", "message": WHY, "details": {}}
Seal = Callable[[bytes, str], bytes]


class SecretReplacement:
    """Replaces secrets sealed by another appliance with empty or new ones sealed by this appliance's key."""

    def __init__(self, sealer: Sealer) -> None:
        self._seal: Seal = sealer.seal

    def apply(self, scope: TenantScope) -> None:
        """Removes the secrets of integrations, and gives webhooks new ones and disables them; inside a write."""
        tenant = scope.tenant_id
        for (slug,) in db.rows("SELECT id FROM integration WHERE tenant_id = ?", (tenant,)):
            nothing = self._seal(b"{}", f"{tenant}/integration/{slug}")
            db.execute("UPDATE integration SET sealed = ? WHERE tenant_id = ? AND id = ?", (nothing, tenant, slug))
        for (webhook,) in db.rows("SELECT id FROM webhook WHERE tenant_id = ?", (tenant,)):
            sealed = self._seal(make_secret().encode(), seal_context(tenant, webhook))
            db.execute(
                "UPDATE webhook SET sealed = ?, state = 'disabled', disabled_reason = ? WHERE tenant_id = ? AND id = ?",
                (sealed, "imported: rotate its secret, tell its receiver, then enable it", tenant, webhook),
            )


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
_PAUSE = (
    "UPDATE process SET paused_at = :now WHERE tenant_id = :tenant AND paused_at IS NULL AND EXISTS "
    "(SELECT 1 FROM trigger_state t WHERE t.tenant_id = process.tenant_id AND t.process_id = process.id)"
)
_PARAMETER = re.compile(r":([a-z_]+)")


def clean_up(scope: TenantScope, resealing: SecretReplacement, *, active: bool) -> int:
    """Replaces secrets, cancels unfinished work and, unless `active`, pauses processes with triggers; returns their number.

    Runs inside the write of an import.
    """
    resealing.apply(scope)
    stop_runs(scope)
    values = _parameters(scope)
    for statement in _PARTS:
        _run(statement, values)
    if active:
        return 0
    _run("UPDATE alert SET enabled = 0 WHERE tenant_id = :tenant", values)
    return _run(_PAUSE, values)


def stop_runs(scope: TenantScope) -> None:
    """Inside a write: cancel what a tenant has begun, so that no process continues it."""
    values = _parameters(scope)
    for statement in _RUNS:
        _run(statement, values)


def _parameters(scope: TenantScope) -> Mapping[str, str | int]:
    return {
        "now": clock.now_ms(), "tenant": scope.tenant_id, "why": WHY, "error": db.dump_json(_ERROR),
        "call_error": db.dump_json(_CALL_ERROR),
    }  # fmt: skip


def _run(statement: str, values: Mapping[str, str | int]) -> int:
    return db.execute(_PARAMETER.sub("?", statement), tuple(values[name] for name in _PARAMETER.findall(statement)))
