"""`integration`: one action of a foreign system, through the governed executor; the step is its own grant."""

from concurrent.futures import wait
from contextvars import copy_context
from functools import partial

from appliance.core.errors import ApplianceError
from appliance.processes.failing import from_coded
from appliance.processes.journal import ActionCall, Cancelled
from appliance.processes.task import Result, Task, Tools

# How often it is looked whether somebody has cancelled the execution meanwhile.
LOOK_SECONDS = 0.1


def perform(tools: Tools, task: Task) -> Result:
    """The action's output.  The idempotency key is the same for every attempt of this step run.

    Cancelled, the step ends at once; the call runs to its own end and is recorded as what it came to.
    """
    settings = task.step.settings
    given, may = task.filled.get("input", task.input), task.grants.documents
    request = ActionCall(settings["use"], settings["action"], given, task.where, may)
    seconds = task.wall_ms(tools.default_time_ms) / 1000
    # In a thread of its own, so that a cancel need not wait for a foreign system; the call is recorded all the same.
    ask = partial(copy_context().run, tools.actions.execute, task.claim, request, seconds)
    call = tools.submit_io(task.claim.scope.tenant_id, ask)
    while not wait([call], LOOK_SECONDS).done:
        if task.is_cancelled():
            raise Cancelled
    try:
        return Result(output=call.result())
    except ApplianceError as error:
        raise from_coded(error) from error
