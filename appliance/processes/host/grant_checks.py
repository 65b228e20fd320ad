"""Checks that a step's grants allow a call; the error names the missing grant."""

from typing import Any

from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.processes.definitions.nodes import Grants
from appliance.sandbox import HostCall


def check_data_grant(grants: Grants, method: str, args: list[Any], access: str) -> None:
    """Raises PolicyDenied unless the grants allow `access` to the collection named by the first argument."""
    collection = args[0] if args and isinstance(args[0], str) else None
    if collection is None:
        raise ValidationFailed(Sentence("call api.%(method)s(collection, …) with the collection's name first", method=method))
    if not grants.allows_data(collection, access):
        raise PolicyDenied(Sentence(
            "this step has no grant to %(access)s %(collection)s; add grants: datapool: {%(collection)s: [%(access)s]}",
            access=access, collection=collection,
        ))


def check_read_grants(grants: Grants, call: HostCall) -> None:
    """Raises PolicyDenied unless the grants allow what the call reads."""
    if call.method.startswith("documents."):
        check_document_grant(grants, "read")
    else:
        check_data_grant(grants, call.method, call.args, "read")


def check_document_grant(grants: Grants, access: str) -> None:
    """Raises PolicyDenied unless the grants allow `access` to documents."""
    if access not in grants.documents:
        raise PolicyDenied(
            Sentence("this step has no grant to %(access)s documents; add grants: documents: [%(access)s]", access=access)
        )


def check_write_grants(grants: Grants, call: HostCall) -> None:
    """Raises PolicyDenied unless the grants allow everything that the call writes to."""
    if call.method.startswith("documents."):
        check_document_grant(grants, "write")
        return
    if call.method != "datapool.batch":
        check_data_grant(grants, call.method, call.args, "write")
        return
    for collection in batch_collections(call.args):
        check_data_grant(grants, call.method, [collection], "write")


def batch_collections(args: list[Any]) -> set[str]:
    """The collections a batch writes to; raises ValidationFailed when it has no list of operations."""
    operations = args[0].get("operations") if args and isinstance(args[0], dict) else args[0] if args else None
    if not isinstance(operations, list):
        raise ValidationFailed("call api.datapool.batch({operations: […]})")
    names = {op.get("collection") for op in operations if isinstance(op, dict)}
    if not all(isinstance(name, str) for name in names):
        raise ValidationFailed("every operation of a batch must name its collection")
    return {str(name) for name in names}


def check_action_grant(grants: Grants, args: list[Any]) -> tuple[str, str, Any]:
    """Parses a call into (integration, action, input); raises PolicyDenied unless the grants allow the action."""
    match args:
        case [str() as slug, str() as action]:
            payload: Any = {}
        case [str() as slug, str() as action, payload]:
            pass
        case _:
            raise ValidationFailed("call api.integrations.execute(integration, action, input)")
    if not grants.allows_action(slug, action):
        raise PolicyDenied(Sentence(
            "this step has no grant for %(action)s of %(slug)s; add grants: integrations: {%(slug)s: [%(action)s]}",
            action=action, slug=slug,
        ))
    return slug, action, payload
