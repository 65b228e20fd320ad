"""`branch`: the first option whose condition is true is taken; without one the output is null."""

from appliance.processes.engine.evaluation import evaluate, is_true
from appliance.processes.engine.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """Choose an option; the conditions are evaluated together, a failing one fails the step."""
    blocks = task.step.blocks
    wanted = [e for block in blocks if block.when for e in block.when.expressions]
    values = evaluate(tools.pool, wanted, task.names, task.now)
    for index, block in enumerate(blocks):
        if block.when is None or is_true(block.when.fill(values)):
            return Result(status="running", state={"taken": index})
    return Result(output=None)
