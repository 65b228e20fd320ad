"""`datapool`: one operation on entities; a write happens in the same transaction that records the step."""

from typing import Any

from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.processes.definitions.kinds import OPERATIONS
from appliance.processes.engine.failures import failed_validation, from_appliance_error
from appliance.processes.engine.task import Result, StepServices, Task

READS = ("find", "query")


def perform(tools: StepServices, task: Task) -> Result:
    """Performs the operation; the output is an entity, a page of a query, or the results of a batch."""
    operation = task.step.settings["operation"]
    method = f"datapool.{operation}"
    args = _arguments(task, operation)
    if operation not in READS:
        return Result(in_commit=lambda: tools.data.perform(task.claim, method, args))
    try:
        return Result(output=tools.data.perform(task.claim, method, args))
    except ApplianceError as error:
        raise from_appliance_error(error) from error


def _arguments(task: Task, operation: str) -> list[Any]:
    """The positional arguments of `api.datapool.<operation>` for the step's settings."""
    value = task.filled["arguments"]
    collection = task.step.settings["collection"]
    if operation == "batch":
        return [value]
    required = OPERATIONS[operation]
    if not required:
        return [collection, value]
    if not isinstance(value, dict) or set(value) != set(required):
        message = Sentence("%(operation)s takes an object with %(required)s", operation=operation, required=' and '.join(required))
        raise failed_validation(message, f"{task.step.pointer}/datapool/{operation}", "arguments_invalid")
    return [collection, value] if operation == "upsert" else [collection, *(value[name] for name in required)]
