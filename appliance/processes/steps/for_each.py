"""`for_each`: the items are fixed when the step begins; its inner steps run once per item."""

from typing import Any

from appliance.processes.engine import History, StepRun
from appliance.processes.evaluation import fill
from appliance.processes.failing import failed_validation
from appliance.processes.task import Result, Task, Tools

MAX_ITEMS = 10_000


def perform(tools: Tools, task: Task) -> Result:
    """Note the items; an empty list is finished at once."""
    items = task.filled["items"]
    if not isinstance(items, list):
        raise failed_validation("items must be a list", f"{task.step.pointer}/for_each/items")
    if len(items) > MAX_ITEMS:
        raise failed_validation(f"a for_each takes at most {MAX_ITEMS} items; send them in parts", task.step.pointer)
    if not items:
        return Result(output=[])
    return Result(status="running", state={"items": items})


def collect(tools: Tools, task: Task, history: History, run: StepRun, outputs: list[Any]) -> list[Any]:
    """The step's output: the last output of each iteration, or what `collect` makes of the iteration."""
    template = task.step.blocks[0].collect
    if template is None:
        return outputs
    collected = []
    for index, item in enumerate(run.state["items"]):
        inner = f"{task.iteration}.{index}" if task.iteration else str(index)
        names = {**task.names, "steps": history.outputs_for(inner), task.step.settings["as"]: item, "index": index}
        collected.append(fill(tools.pool, {"collect": template}, names, task.now)["collect"])
    return collected
