"""`for_each`: the items are fixed when the step begins; its inner steps run once per item."""

from collections.abc import Mapping
from typing import Any

from appliance.processes.engine import Close, History
from appliance.processes.evaluation import fill
from appliance.processes.failing import failed_validation
from appliance.processes.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """Note the items; an empty list is finished at once."""
    items = task.filled["items"]
    if not isinstance(items, list):
        raise failed_validation("items must be a list", f"{task.step.pointer}/for_each/items", "items_invalid")
    if len(items) > tools.most_items:
        message = f"a for_each takes at most {tools.most_items} items, these are {len(items)}; send them in parts"
        raise failed_validation(message, task.step.pointer, "too_many_items")
    if not items:
        return Result(output=[])
    return Result(status="running", state={"items": items})


def collect(tools: Tools, close: Close, history: History, names: Mapping[str, Any], now: int) -> list[Any]:
    """The step's output: the last output of each iteration, or what `collect` makes of the iteration."""
    template = close.step.blocks[0].collect
    outputs: list[Any] = close.output
    if template is None:
        return outputs
    collected = []
    for index, item in enumerate(close.run.state["items"]):
        inner = f"{close.iteration}.{index}" if close.iteration else str(index)
        seen = {**names, "steps": history.outputs_for(inner), close.step.settings["as"]: item, "index": index}
        collected.append(fill(tools.pool, {"collect": template}, seen, now)["collect"])
    return collected
