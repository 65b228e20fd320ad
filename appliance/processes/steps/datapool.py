"""`datapool`: one operation on records; a write happens in the very commit that records the step."""

from typing import Any

from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.processes.definitions.kinds import OPERATIONS
from appliance.processes.engine.failing import failed_validation, from_coded
from appliance.processes.engine.task import Result, Task, Tools

READS = ("find", "query")


def perform(tools: Tools, task: Task) -> Result:
    """The operation's answer: an entity, a page of a query, or the results of a batch."""
    operation = task.step.settings["operation"]
    method = f"datapool.{operation}"
    args = _arguments(task, operation)
    if operation not in READS:
        return Result(in_commit=lambda: tools.data.perform(task.claim, method, args))
    try:
        return Result(output=tools.data.perform(task.claim, method, args))
    except ApplianceError as error:
        raise from_coded(error) from error


def _arguments(task: Task, operation: str) -> list[Any]:
    """The positional arguments that `api.datapool.<operation>` takes for the step's member."""
    given = task.filled["arguments"]
    collection = task.step.settings["collection"]
    if operation == "batch":
        return [given]
    required = OPERATIONS[operation]
    if not required:
        return [collection, given]
    if not isinstance(given, dict) or set(given) != set(required):
        message = Sentence("%(operation)s takes an object with %(required)s", operation=operation, required=' and '.join(required))
        raise failed_validation(message, f"{task.step.pointer}/datapool/{operation}", "arguments_invalid")
    return [collection, given] if operation == "upsert" else [collection, *(given[name] for name in required)]
