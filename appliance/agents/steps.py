"""Implements the port through which process steps start and withdraw agent runs."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.processes.engine import CallWithdrawn, Claim
from appliance.processes.host import AgentEffect, AgentRunRequest, PreparedRun, tainting

from . import runs, store, versions
from .definition import CALL_ACTION
from .journal import CallState, Journal
from .models import AgentRunRow
from .runs import RunRequest, StepOrigin
from .step_grants import scopes_of, serialize_grants
from .store import FINISHED

_CHANGING = ("write_entities", "request_human_input", "execute_process", "publish_webapp")
_REFUSED = ("policy_denied", "validation_failed", "scope_missing", "not_found")


def find_output(scope: TenantScope, agent_id: str) -> Mapping[str, Any] | None:
    """The JSON Schema of the agent's answer, empty for plain text; None if there is no such agent."""
    try:
        return versions.get_version(scope, agent_id).definition.output or {}
    except NotFound:
        return None


class AgentSteps:
    """The processes' port to agents; `enqueue` schedules a run and is called inside a transaction."""

    def __init__(self, enqueue: Callable[[str, str], None]) -> None:
        self._enqueue = enqueue

    def move_durations(self, by_ms: int) -> None:
        """See `store.move_durations`."""
        store.move_durations(by_ms)

    def output_of(self, scope: TenantScope, agent_id: str) -> Mapping[str, Any] | None:
        """See `find_output`."""
        return find_output(scope, agent_id)

    def prepare(self, claim: Claim, request: AgentRunRequest) -> PreparedRun:
        """See `Agents.prepare_version`.  The run acts as the execution, with the step's grants, not its starter's scopes."""
        versions.get_agent(claim.scope, request.agent_id)
        if not isinstance(request.input, dict | str) or request.input == "":
            raise ValidationFailed("the input of an agent must be a non-empty text or an object", pointer="/input")
        runs.check_input(request.input)
        granted = serialize_grants(request.grants)
        scope = TenantScope(claim.scope.tenant_id, claim.scope.actor, scopes_of(granted), claim.request_id)
        path, iteration, attempt = request.run_key
        origin = StepOrigin(
            execution_id=claim.execution_id, process_id=claim.process_id, step=request.step, path=path, iteration=iteration,
            attempt=attempt, granted=granted,
        )

        def insert() -> str:
            sources = tainting.sources_of(scope, claim.execution_id)
            if not request.is_trusted:
                sources.append(f"process:{claim.process_id}")
            run, is_new = runs.insert_run(scope, request.agent_id, RunRequest(request.input, origin=origin, tainted_by=sources))
            if is_new:
                self._enqueue(scope.tenant_id, run.id)
            return run.id

        return PreparedRun(insert)

    def effects_of(self, scope: TenantScope, execution_id: str, path: str, iteration: str) -> list[AgentEffect]:
        """See `Agents.effects_of`."""
        place = {"execution_id": execution_id, "path": path, "iteration": iteration}
        query = scope.select(AgentRunRow, AgentRunRow.id)
        for name, value in place.items():
            query = query.where(getattr(AgentRunRow, name) == value)
        effects: list[AgentEffect] = []
        for row in query.order_by(AgentRunRow.attempt):
            journal = Journal(store.load_entries(scope, row.id))
            effects += [effect for _, state in sorted(journal.calls.items()) if (effect := _effect_of(state)) is not None]
        return effects

    def withdraw(self, event: CallWithdrawn) -> None:
        """Cancel a run whose step no longer waits for it.  Called inside a transaction."""
        row = event.scope.find(AgentRunRow, id=event.token) if event.kind == "agent" else None
        if row is not None and row.status not in FINISHED:
            runs.cancel_row(event.scope, row)


def _effect_of(state: CallState) -> AgentEffect | None:
    """The effect that a call had or may have had; None for reads, previews and calls refused before they started."""
    call, returned = state.called or {}, state.returned or {}
    tool, result, refusal = str(call.get("tool", "")), returned.get("result") or {}, returned.get("error") or {}
    is_action = tool == CALL_ACTION
    if is_action and not refusal:  # in other tools' results, `error` describes the thing they acted on, not the call
        refusal = result.get("error") or {}
    code = str(refusal.get("code"))
    if not refusal.get("begun") and (code in _REFUSED or code.startswith("approval_")):
        return None
    certain = bool(returned.get("ok"))
    if not is_action:
        return AgentEffect(tool, certain) if tool in _CHANGING else None
    arguments = _parse_arguments(call.get("arguments"))
    if result.get("effect") == "read" or result.get("status") == "previewed" or arguments.get("mode") == "preview":
        return None
    action = (str(result.get(name) or arguments.get(name) or "?")[:80] for name in ("integration", "operation"))
    return AgentEffect("/".join(action), certain)


def _parse_arguments(arguments: Any) -> dict[str, Any]:
    """The arguments of a call, which the model sends as an object or as JSON text; empty if they are neither."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return {}
    return arguments if isinstance(arguments, dict) else {}
