"""Starts child executions in the commit that records the parent's call, up to a maximum depth."""

from collections.abc import Callable
from typing import Any

from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.executions import service as executions
from appliance.processes.executions.starting import EXECUTIONS_PER_DAY, ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.host import tainting
from appliance.processes.scheduling import backlog
from appliance.quotas import daily

from .store import Claim
from .waits import Child

MAX_DEPTH = 10


def check_depth(depth: int) -> None:
    """Conflict if an execution would be nested deeper than MAX_DEPTH."""
    if depth > MAX_DEPTH:
        raise Conflict(Sentence(
            "executions can be nested at most %(max_depth)s deep; does a process start itself endlessly?", max_depth=MAX_DEPTH
        ))


class ChildStarter:
    """Starts children in this appliance; `load` compiles a version, `enqueue` queues an execution inside a write."""

    def __init__(self, load: Callable[[TenantScope, str, int], CompiledVersion], enqueue: Callable[[str, str, int], None]) -> None:
        self._load = load
        self._enqueue = enqueue

    def prepare(self, claim: Claim, process_id: str, child_input: Any, *, awaited: bool = False) -> Child:
        """An `awaited` child keeps its parent's place in the queue instead of going behind everything accepted since.

        NotFound, NotPublished, ValidationFailed for an invalid input, Conflict if it would be nested too deep,
        ConcurrencyLimited if there are too many, RateLimited if the tenant has used up its executions of the day.
        """
        scope = claim.scope
        if not isinstance(child_input, dict):
            raise ValidationFailed("the input of a process must be an object", pointer="/input")
        version = executions.resolve_version(scope, process_id, None)
        executions.check_input(scope, self._load(scope, process_id, version), child_input)
        parent_key = (scope.tenant_id, claim.execution_id)
        sql = "SELECT depth, priority, root, rank FROM execution WHERE tenant_id = ? AND id = ?"
        ((parent_depth, priority, parent_root, rank),) = db.rows(sql, parent_key)
        depth = parent_depth + 1
        check_depth(depth)
        request = StartRequest(child_input, version, None, priority)

        root = parent_root or claim.execution_id
        backlog.admit_descendant(scope, root)
        backlog.admit_queued(scope)
        daily.check(scope, EXECUTIONS_PER_DAY)

        def insert() -> dict[str, Any]:
            origin = ExecutionOrigin(parent=claim.execution_id, depth=depth, root=root, rank=rank if awaited else None)
            row, _ = insert_execution(scope, process_id, version, request, origin)
            tainting.add_sources(scope, row.id, tainting.sources_of(scope, claim.execution_id))
            self._enqueue(scope.tenant_id, row.id, row.priority)
            return {"execution_id": row.id, "process_id": process_id, "version": version, "status": row.status}

        return Child(insert)
