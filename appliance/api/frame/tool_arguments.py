"""Builds the arguments of the tool equivalent to a route, so that policies and approvals see the same action for both."""

from collections.abc import Callable, Mapping
from typing import Any

from .routing import Call

Arguments = Callable[[Call, Mapping[str, str]], dict[str, Any]]


def operation_arguments(op: str) -> Arguments:
    """Build the arguments of `write_entities` with one operation."""

    def arguments(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
        entry: dict[str, Any] = {"op": op, "collection": path_args["collection"]}
        if "entity_id" in path_args:
            entry["id"] = path_args["entity_id"]
        if call.body is not None:
            entry["values"] = call.body
        if call.if_match is not None and call.if_match.isdecimal():
            entry["if_version"] = int(call.if_match)
        return {"operations": [entry]}

    return arguments


def batch_arguments(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `write_entities` for a batch."""
    return {"operations": call.body.operations, **({"dry_run": True} if call.body.dry_run else {})}


def execution_arguments(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `execute_process`."""
    options = call.query.model_dump(mode="json", exclude_unset=True, exclude={"wait"})
    return {"process_id": path_args["process_id"], "input": call.body, **options}


def publication_arguments(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `publish_webapp`."""
    number = path_args["version"]
    version = int(number) if number.isdecimal() and len(number) < 10 else number
    return {"app": path_args["app"], "version": version, **call.body.model_dump(mode="json", exclude_unset=True)}
