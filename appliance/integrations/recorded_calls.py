"""Reads call records in batches, newest first, for replay."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from appliance.connectors.contract import Effect
from appliance.core.database import db
from appliance.core.scope import TenantScope

_FEW = 32  # an input may take a megabyte
_MANY = 500
_SELECT = (
    "SELECT id, integration_id, connector, action, effect, status, actor, execution_id, created_at, decision, traffic{} "
    "FROM integration_call WHERE tenant_id = ? AND created_at >= ? AND (created_at < ? OR (created_at = ? AND id < ?)) "
    "ORDER BY created_at DESC, id DESC LIMIT ?"
)


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call.

    `input` has secrets redacted, and is None if it was too large to store or not requested; `decision` is the policies' decision
    with its subject, None in old records; `hosts` are those the call contacted.
    """

    id: str
    integration: str
    connector: str
    action: str
    effect: Effect
    status: str
    actor: str
    execution_id: str | None
    created_at: int
    decision: Mapping[str, Any] | None
    hosts: tuple[str, ...]
    input: Any = None


def list_recorded_calls(
    scope: TenantScope, span: tuple[int, int], before: tuple[int, str] | None, *, with_input: bool
) -> list[RecordedCall]:
    """The next calls made in `span` (epoch ms, [since, until)) before this time and id; empty at the end."""
    at, call_id = before or (span[1], "")
    sql = _SELECT.format(', input' if with_input else '')
    params = (scope.tenant_id, span[0], at, at, call_id, _FEW if with_input else _MANY)
    return [_from_row(row) for row in db.rows(sql, params)]


def _from_row(row: tuple[Any, ...]) -> RecordedCall:
    call_id, integration, connector, action, effect, status, actor, execution_id, created_at, *columns = row
    decision, traffic, *inputs = (None if each is None else json.loads(each) for each in columns)
    hosts = tuple((traffic or {}).get("hosts", ()))
    return RecordedCall(
        id=str(call_id), integration=str(integration), connector=str(connector), action=str(action), effect=cast(Effect, effect),
        status=str(status), actor=str(actor), execution_id=execution_id, created_at=int(created_at), decision=decision,
        hosts=hosts, input=inputs[0] if inputs else None,
    )  # fmt: skip
