"""Grants of runs that process steps start: such a run is limited to its step's grants, whatever the agent lists."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.errors import NotFound, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions import Grants
from appliance.processes.executions import service as executions

from .definition import CALL_ACTION

Granted = Mapping[str, Any]


def serialize_grants(grants: Grants) -> dict[str, Any]:
    """The grants that apply to agent tools, as JSON."""
    return {
        "integrations": {slug: sorted(actions) for slug, actions in sorted(grants.integrations.items())},
        "datapool": {name: sorted(access) for name, access in sorted(grants.datapool.items())},
        "documents": sorted(grants.documents), "processes": sorted(grants.processes), "human": grants.human,
    }  # fmt: skip


def scopes_of(granted: Granted) -> frozenset[str]:
    """The scopes of a run with these grants; tools that need another scope are not offered to it."""
    data = {access for each in granted["datapool"].values() for access in each}
    scopes = {"skills.read"} | {f"entities.{access}" for access in data}
    scopes |= {f"documents.{access}" for access in granted["documents"]}
    if granted["integrations"]:
        scopes |= {"integrations.read", "integrations.execute"}
    if granted["processes"]:
        scopes |= {"processflow.read", "processflow.execute"}
    return frozenset(scopes | ({"approvals.request"} if granted["human"] else set()))


def allows_action(granted: Granted | None, integration: str, operation: str) -> bool:
    """Whether the operation is granted; always true for a run that was not started by a step (`granted` is None)."""
    if granted is None:
        return True
    actions = granted["integrations"].get(integration, ())
    return "*" in actions or operation in actions


def check_grants(scope: TenantScope, granted: Granted | None, tool: str, arguments: Mapping[str, Any]) -> None:
    """Raise PolicyDenied, naming the missing grant, unless everything that the call touches is granted."""
    if granted is None:
        return
    if tool == CALL_ACTION:
        slug, operation = str(arguments.get("integration", "")), str(arguments.get("operation", ""))
        if not allows_action(granted, slug, operation):
            raise _missing_grant(f"{operation[:80]} of {slug[:63]}", f"integrations: {{{slug[:63]}: [{operation[:80]}]}}")
    elif tool == "query_entities":
        _check_collections(granted, [arguments.get("collection")], "read")
    elif tool == "write_entities":
        operations = arguments.get("operations")
        items = operations if isinstance(operations, list) else []
        _check_collections(granted, [each.get("collection") for each in items if isinstance(each, Mapping)], "write")
    elif tool == "execute_process":
        _check_process(granted, str(arguments.get("process_id", "")))
    elif tool == "get_execution":
        try:
            row = executions.get_execution(scope, str(arguments.get("execution_id", "")))
        except NotFound:
            return  # the tool itself reports it
        _check_process(granted, row.process_id)


def _check_collections(granted: Granted, collections: Iterable[Any], access: str) -> None:
    for name in collections:
        if access not in granted["datapool"].get(str(name), ()):
            raise _missing_grant(f"to {access} {str(name)[:63]}", f"datapool: {{{str(name)[:63]}: [{access}]}}")


def _check_process(granted: Granted, process_id: str) -> None:
    if process_id not in granted["processes"]:
        raise _missing_grant(f"for the process {process_id[:63]}", f"processes: [{process_id[:63]}]")


def _missing_grant(what: str, grants: str) -> PolicyDenied:
    message = Sentence(
        "the step that started this run has no grant %(what)s; add grants: %(grants)s to the process", what=what, grants=grants
    )
    return PolicyDenied(message, extra={"reason": "not_granted"})
