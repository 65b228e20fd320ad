"""`datapool`: one operation on records; a write happens in the very commit that records the step."""

from typing import Any

from appliance.core.errors import ApplianceError
from appliance.processes.failing import from_coded
from appliance.processes.task import Result, Task, Tools

READS = ("find", "query")


def perform(tools: Tools, task: Task) -> Result:
    """The operation's answer: an entity, a page of a query, or the results of a batch."""
    operation = task.step.settings["operation"]
    method = f"datapool.{operation}"
    args = _arguments(operation, task.step.settings["collection"], task.filled["arguments"])
    if operation not in READS:
        return Result(in_commit=lambda: tools.data.perform(task.claim, method, args))
    try:
        return Result(output=tools.data.perform(task.claim, method, args))
    except ApplianceError as error:
        raise from_coded(error) from error


def _arguments(operation: str, collection: str, given: Any) -> list[Any]:
    """The positional arguments that `api.datapool.<operation>` takes for the step's member."""
    if operation == "batch":
        return [given]
    if not isinstance(given, dict):
        return [collection, given]
    if operation == "create":
        return [collection, given["values"]]
    if operation == "update":
        return [collection, given["id"], given["values"]]
    if operation in ("find", "delete"):
        return [collection, given["id"]]
    return [collection, given]
