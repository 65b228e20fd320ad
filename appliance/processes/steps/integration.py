"""`integration`: one action of a foreign system, through the governed executor; the step is its own grant."""

from concurrent.futures import wait
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from appliance.core.errors import ApplianceError
from appliance.governance import ActionNeedsApproval, Permit
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.failing import StepFailed, from_coded, make_error
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.engine.waits import fault_of_refusal
from appliance.processes.host.journal import Cancelled
from appliance.processes.host.reached import ActionCall

from . import asking

# How often it is looked whether somebody has cancelled the execution meanwhile.
LOOK_SECONDS = 0.1
APPROVAL = "approval_id"
"""Among what is filled in: the approval under which the action is done."""
_NEXT = "retry from the failed step to ask again, or change what the policy wants approved"


def perform(tools: Tools, task: Task) -> Result:
    """The action's output.  The idempotency key is the same for every attempt of this step run.

    Cancelled, the step ends at once; the call runs to its own end and is recorded as what it came to.
    """
    settings = task.step.settings
    given, may = task.filled.get("input", task.input), task.grants.documents
    request = ActionCall(settings["use"], settings["action"], given, task.where, may, task.filled.get(APPROVAL), task.span_key)
    seconds = task.wall_ms(tools.default_time_ms) / 1000
    # In a thread of its own, so that a cancel need not wait for a foreign system; the call is recorded all the same.
    ask = partial(copy_context().run, tools.actions.execute, task.claim, request, seconds)
    call = tools.submit_io(task.claim.scope.tenant_id, ask)
    while not wait([call], LOOK_SECONDS).done:
        if task.is_cancelled():
            raise Cancelled
    try:
        return Result(output=call.result())
    except ActionNeedsApproval as refusal:
        return _wait(tools, task, refusal.permit)
    except ApplianceError as error:
        raise from_coded(error) from error


def _wait(tools: Tools, task: Task, permit: Permit) -> Result:
    """People decide first; what the expressions came to is kept for then."""
    begun = asking.waits_of(tools, task, Grants()).await_approval(asking.CALL, permit)

    def record() -> Result:
        waiting = asking.wait_for(*begun.record())
        return replace(waiting, state={**waiting.state, "filled": {**task.filled, APPROVAL: None}})

    return Result(settle=record)


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """Once it is approved the action is done, exactly as it was asked for; else the step fails."""
    if not ok:
        return asking.take_answer(task, ok, value)
    if value["status"] != "approved":
        fault = fault_of_refusal(value)
        return StepFailed(make_error(fault["code"], "policy", fault["message"]) | {"next": _NEXT})
    return Result(status="pending", state={"filled": {**task.filled, APPROVAL: value["request_id"]}})
