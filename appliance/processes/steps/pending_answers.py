"""Steps that wait for an answer: the request is recorded in the transaction that suspends the step, as is the answer later."""

from collections.abc import Callable
from typing import Any

from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine import suspension
from appliance.processes.engine.failures import StepFailed, make_error
from appliance.processes.engine.suspension import PendingCall
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.engine.waits import OWN_METHODS, PreparedCall, Waits
from appliance.sandbox import HostCall

CALL = 1  # such a step makes one call, and this is its number
NEXT = {
    "child_failed": "look at the child execution, fix what failed there, and retry from the failed step to start another child",
    "wait_timed_out": "retry from the failed step to wait again, or give the step a longer timeout, publish, and retry with that",
}
# Turns an answer (ok, value) into a result; StepFailed is returned, not raised, so that its journal is committed.
Conclude = Callable[[Task, bool, Any], Result | StepFailed]


def begin(tools: StepServices, task: Task, method: str, args: list[Any], grants: Grants) -> Result:
    """Makes a call that waits; raises ApplianceError when the call is invalid."""
    call = prepare(tools, task, method, args, grants)

    return Result(settle=lambda: wait_for(*call.record()), is_own=method in OWN_METHODS)


def wait_for(pending: PendingCall | None, value: Any) -> Result:
    """The result that suspends the step; with nothing to wait for, `value` is its output."""
    if pending is None:
        return Result(output=value)
    return Result(status="waiting", state={"suspended": True}, next_run_at=pending.due_at)


def prepare(tools: StepServices, task: Task, method: str, args: list[Any], grants: Grants) -> PreparedCall:
    """Validates a call that waits, ready to be recorded; raises ApplianceError when it is invalid."""
    return waits_of(tools, task, grants).prepare(HostCall(CALL, method, args))


def finish(tools: StepServices, task: Task, conclude: Conclude) -> Result:
    """Continues with the answer, or with the timeout's substitute for one."""
    claim = task.claim

    def answer() -> Result | StepFailed:
        pending = suspension.load_calls(claim.scope, claim.execution_id, task.run_key)[CALL]
        if pending.ok is not None:
            return conclude(task, pending.ok, pending.answer)
        return conclude(task, *waits_of(tools, task, Grants()).answer_due(pending))

    return Result(settle=answer, is_own=True)


def take_answer(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """Takes the answer as the step's output, or the error as its failure."""
    if ok:
        return Result(output=value)
    error = make_error(value["code"], value.get("failure_class", "system"), value["message"], retryable=value["retryable"])
    return StepFailed({**error, "next": NEXT.get(value["code"], error["next"])})


def waits_of(tools: StepServices, task: Task, grants: Grants) -> Waits:
    """The interface for the waiting calls of the step."""
    return Waits(task.claim, task.run_key, task.step.id, grants, tools.children, tools.max_wait_ms)
