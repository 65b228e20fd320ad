"""`parallel`: runs named branches concurrently; the output is an object of their outputs by name."""

from appliance.processes.engine.task import Result, StepServices, Task


def perform(tools: StepServices, task: Task) -> Result:
    """Starts every branch."""
    return Result(status="running", state={"branches": [block.name for block in task.step.blocks]})
