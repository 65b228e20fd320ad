"""The arguments of the tools that do the same as a route: what policies and approvals see of both is one."""

from collections.abc import Callable, Mapping
from typing import Any

from .routing import Call

Arguments = Callable[[Call, Mapping[str, str]], dict[str, Any]]


def operation(op: str) -> Arguments:
    """One operation of `write_entities`."""

    def arguments(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
        made: dict[str, Any] = {"op": op, "collection": path_args["collection"]}
        if "entity_id" in path_args:
            made["id"] = path_args["entity_id"]
        if call.body is not None:
            made["values"] = call.body
        if call.if_match is not None and call.if_match.isdecimal():
            made["if_version"] = int(call.if_match)
        return {"operations": [made]}

    return arguments


def batch(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
    """The operations of a batch."""
    return {"operations": call.body.operations, **({"dry_run": True} if call.body.dry_run else {})}


def execution(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
    """What `execute_process` starts."""
    options = call.query.model_dump(mode="json", exclude_unset=True, exclude={"wait"})
    return {"process_id": path_args["process_id"], "input": call.body, **options}


def publication(call: Call, path_args: Mapping[str, str]) -> dict[str, Any]:
    """What `publish_webapp` publishes."""
    number = path_args["version"]
    version = int(number) if number.isdecimal() and len(number) < 10 else number
    return {"app": path_args["app"], "version": version, **call.body.model_dump(mode="json", exclude_unset=True)}
