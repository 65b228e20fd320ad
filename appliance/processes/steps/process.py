"""`process`: executes another process and, by default, waits for its output; the step needs no grant for it."""

from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.engine.waits import CHILD

from . import pending_answers


def perform(tools: StepServices, task: Task) -> Result:
    """Starts the child; without `wait` the output has the id of its execution."""
    settings = task.step.settings
    args = [settings["use"], task.filled.get("input", task.input), {"wait": settings["wait"]}]
    return pending_answers.begin(tools, task, CHILD, args, Grants(processes=frozenset({settings["use"]})))
