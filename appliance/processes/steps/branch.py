"""`branch`: takes the first option whose condition is true; the output is null when none is."""

from appliance.processes.engine.evaluation import evaluate, is_true
from appliance.processes.engine.task import Result, StepServices, Task


def perform(tools: StepServices, task: Task) -> Result:
    """Chooses an option; all conditions are evaluated together, and an error in one fails the step."""
    blocks = task.step.blocks
    expressions = [e for block in blocks if block.when for e in block.when.expressions]
    values = evaluate(tools.pool, expressions, task.names, task.now)
    for index, block in enumerate(blocks):
        if block.when is None or is_true(block.when.fill(values)):
            return Result(status="running", state={"taken": index})
    return Result(output=None)
