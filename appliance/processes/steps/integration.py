"""`integration`: one action of a foreign system, through the governed executor; the step needs no grant for it."""

from concurrent.futures import wait
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from appliance.core.errors import ApplianceError
from appliance.governance import ActionNeedsApproval, Permit
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.failures import StepFailed, from_appliance_error, make_error
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.engine.waits import error_of_refusal
from appliance.processes.host.journal import Cancelled
from appliance.processes.host.protocols import ActionCall

from . import pending_answers

# How often a waiting step checks whether the execution was cancelled.
POLL_SECONDS = 0.1
APPROVAL = "approval_id"
"""The key, among the evaluated settings, of the approval under which the action is executed."""
_NEXT = "retry from the failed step to request approval again, or change which actions the policy wants approved"


def perform(tools: StepServices, task: Task) -> Result:
    """Executes the action; the idempotency key is the same for every attempt of this step run.

    When the execution is cancelled, the step ends at once; the call continues to its end and is recorded.
    """
    settings = task.step.settings
    request = ActionCall(
        integration=settings["use"], action=settings["action"], input=task.filled.get("input", task.input),
        where=task.idempotency_scope, documents=task.grants.documents, approval_id=task.filled.get(APPROVAL), step=task.span_key,
    )  # fmt: skip
    seconds = task.wall_ms(tools.default_time_ms) / 1000
    # In a thread of its own, so that a cancel need not wait for a foreign system; the call is recorded in any case.
    ask = partial(copy_context().run, tools.actions.execute, task.claim, request, seconds)
    call = tools.submit_io(task.claim.scope.tenant_id, ask)
    while not wait([call], POLL_SECONDS).done:
        if task.is_cancelled():
            raise Cancelled
    try:
        return Result(output=call.result())
    except ActionNeedsApproval as refusal:
        return _wait(tools, task, refusal.permit)
    except ApplianceError as error:
        raise from_appliance_error(error) from error


def _wait(tools: StepServices, task: Task, permit: Permit) -> Result:
    """Waits for the approval; the evaluated settings are stored for the execution afterwards."""
    call = pending_answers.waits_of(tools, task, Grants()).await_approval(pending_answers.CALL, permit)

    def record() -> Result:
        waiting = pending_answers.wait_for(*call.record())
        return replace(waiting, state={**waiting.state, "filled": {**task.filled, APPROVAL: None}})

    return Result(settle=record)


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """Once approved, the step runs again with exactly the stored settings; otherwise it fails."""
    if not ok:
        return pending_answers.take_answer(task, ok, value)
    if value["status"] != "approved":
        error = error_of_refusal(value)
        return StepFailed(make_error(error["code"], "policy", error["message"]) | {"next": _NEXT})
    return Result(status="pending", state={"filled": {**task.filled, APPROVAL: value["request_id"]}})
