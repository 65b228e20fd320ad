"""`stop`: ends the execution as succeeded, whatever else is running; the step's output becomes its output."""

from appliance.processes.engine.task import Result, StepServices, Task


def perform(tools: StepServices, task: Task) -> Result:
    """The output of the execution, which the engine ends once this step is recorded."""
    return Result(output=task.filled.get("output"))
