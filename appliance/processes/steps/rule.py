"""`rule`: evaluates an expression, or a decision by the decision engine in a sandbox process."""

from appliance.processes.engine.evaluation import evaluate
from appliance.processes.engine.failures import from_sandbox
from appliance.processes.engine.task import Result, StepServices, Task


def perform(tools: StepServices, task: Task) -> Result:
    """The value of the expression, or the decision's output for the step's input."""
    if "expression" in task.step.templates:
        template = task.step.templates["expression"]
        return Result(output=template.fill(evaluate(tools.pool, template.expressions, task.names, task.now)))
    model, payload = task.compiled.decisions[task.step.path], task.filled.get("input", task.input)
    decision = tools.pool.decide(model, payload, namespace=task.claim.scope.tenant_id)
    if decision.failure is not None:
        raise from_sandbox(decision.failure)
    return Result(output=decision.value)
