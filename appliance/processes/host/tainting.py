"""Tracks the taint of an execution: the outside sources that were read by agents whose answers it uses."""

import json
from collections.abc import Iterable

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance import MAX_SOURCES


def sources_of(scope: TenantScope, execution_id: str) -> list[str]:
    """The sources in the order in which they were added; empty for an unknown execution."""
    rows = db.rows("SELECT tainted_by FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    return [] if not rows or rows[0][0] is None else list(json.loads(rows[0][0]))


def add_sources(scope: TenantScope, execution_id: str, added: Iterable[str]) -> None:
    """Adds sources to the execution's taint; inside a write."""
    existing = sources_of(scope, execution_id)
    new = [each for each in dict.fromkeys(added) if each not in existing]
    if new:
        text = db.dump_json([*existing, *new][:MAX_SOURCES])
        db.execute("UPDATE execution SET tainted_by = ? WHERE tenant_id = ? AND id = ?", (text, scope.tenant_id, execution_id))
