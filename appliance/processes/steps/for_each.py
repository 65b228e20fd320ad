"""`for_each`: runs its inner steps once per item; the items are fixed when the step starts."""

from collections.abc import Mapping
from typing import Any

from appliance.core.sentences import Sentence
from appliance.processes.engine.decide import Close, History
from appliance.processes.engine.evaluation import fill
from appliance.processes.engine.failures import failed_validation
from appliance.processes.engine.task import Result, StepServices, Task

MAX_MESSAGE = 300

def perform(tools: StepServices, task: Task) -> Result:
    """Stores the items; with an empty list the step finishes at once."""
    items = task.filled["items"]
    if not isinstance(items, list):
        raise failed_validation("items must be a list", f"{task.step.pointer}/for_each/items", "items_invalid")
    if len(items) > tools.max_items:
        message = Sentence(
            "a for_each can have at most %(most_items)s items, but there are %(items)s; split them up",
            most_items=tools.max_items, items=len(items),
        )
        raise failed_validation(message, task.step.pointer, "too_many_items")
    if not items:
        return Result(output={"outputs": [], "errors": []} if task.step.settings["on_error"] == "collect" else [])
    return Result(status="running", state={"items": items})


def collect(tools: StepServices, close: Close, history: History, names: Mapping[str, Any], now: int) -> Any:
    """The step's output: for each iteration its last output or the value of `collect`, null where it failed.

    With `on_error: collect` it is an object of these outputs and the errors.
    """
    template = close.step.blocks[0].collect
    outputs: list[Any] = close.output
    if template is not None:
        outputs = []
        for index, item in enumerate(close.run.state["items"]):
            if index in close.errors:
                outputs.append(None)
                continue
            inner = f"{close.iteration}.{index}" if close.iteration else str(index)
            context = {**names, "steps": history.outputs_for(inner), "errors": history.errors_for(inner)}
            context |= {close.step.settings["as"]: item, "index": index}
            outputs.append(fill(tools.pool, {"collect": template}, context, now)["collect"])
    if close.step.settings["on_error"] == "collect":
        return {"outputs": outputs, "errors": summarize_errors(close.errors)}
    return outputs


def summarize_errors(errors: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The errors of iterations, in order; shortened, because a thousand of them must fit into an output."""
    return [
        {
            "index": index, "step": error.get("step"), "code": error["code"], "failure_class": error["failure_class"],
            "message": error["message"][:MAX_MESSAGE],
        }
        for index, error in sorted(errors.items())
    ]  # fmt: skip
