"""`parallel`: named branches side by side; the output is an object of what each of them came to."""

from appliance.processes.engine.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """Begin every branch."""
    return Result(status="running", state={"branches": [block.name for block in task.step.blocks]})
