"""`process`: executes another process and waits for its output, unless told not to; the step is its own grant."""

from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.engine.waits import CHILD

from . import asking


def perform(tools: Tools, task: Task) -> Result:
    """Start the child; without `wait` the output says which execution it is."""
    settings = task.step.settings
    args = [settings["use"], task.filled.get("input", task.input), {"wait": settings["wait"]}]
    return asking.begin(tools, task, CHILD, args, Grants(processes=frozenset({settings["use"]})))
