"""What of the world outside has steered an execution: the sources that agents had read whose answers it goes on with."""

import json
from collections.abc import Iterable

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance import MOST_SOURCES


def sources_of(scope: TenantScope, execution_id: str) -> list[str]:
    """The sources, in the order in which they came; none for an execution that is not there."""
    found = db.rows("SELECT tainted_by FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    return [] if not found or found[0][0] is None else list(json.loads(found[0][0]))


def note_sources(scope: TenantScope, execution_id: str, sources: Iterable[str]) -> None:
    """Inside a write: from now on the execution counts as having read these."""
    known = sources_of(scope, execution_id)
    new = [each for each in dict.fromkeys(sources) if each not in known]
    if new:
        text = db.dump_json([*known, *new][:MOST_SOURCES])
        db.execute("UPDATE execution SET tainted_by = ? WHERE tenant_id = ? AND id = ?", (text, scope.tenant_id, execution_id))
