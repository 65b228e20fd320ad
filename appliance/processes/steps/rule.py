"""`rule`: an expression, or a decision table run by the decision engine in a sandbox process."""

from appliance.processes.engine.evaluation import evaluate
from appliance.processes.engine.failing import from_sandbox
from appliance.processes.engine.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """The value of the expression, or the decision's output for the given input."""
    if "expression" in task.step.templates:
        template = task.step.templates["expression"]
        return Result(output=template.fill(evaluate(tools.pool, template.expressions, task.names, task.now)))
    model, given = task.compiled.decisions[task.step.path], task.filled.get("input", task.input)
    decided = tools.pool.decide(model, given, namespace=task.claim.scope.tenant_id)
    if decided.failure is not None:
        raise from_sandbox(decided.failure)
    return Result(output=decided.value)
