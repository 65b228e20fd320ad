"""`stop`: the execution ends here as succeeded, whatever else is open; this step's output is its output."""

from appliance.processes.engine.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """The output; the engine ends the execution once it is recorded."""
    return Result(output=task.filled.get("output"))
