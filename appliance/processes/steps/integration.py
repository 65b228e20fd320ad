"""`integration`: one action of a foreign system, through the governed executor; the step is its own grant."""

from appliance.core.errors import ApplianceError
from appliance.processes.failing import from_coded
from appliance.processes.journal import ActionCall
from appliance.processes.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """The action's output.  The idempotency key is the same for every attempt of this step run."""
    settings = task.step.settings
    request = ActionCall(settings["use"], settings["action"], task.filled.get("input", task.input), task.where)
    try:
        return Result(output=tools.actions.execute(task.claim, request, task.wall_ms(tools.default_time_ms) / 1000))
    except ApplianceError as error:
        raise from_coded(error) from error
