"""Steps that wait for somebody else: what they ask is recorded in the commit that has them wait, and so is what ends it."""

from collections.abc import Callable
from typing import Any

from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine import suspension
from appliance.processes.engine.failing import StepFailed, make_error
from appliance.processes.engine.suspension import PendingCall
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.engine.waits import Begun, Waits
from appliance.sandbox import HostCall

CALL = 1  # such a step makes one call, and this is its number
NEXT = {
    "child_failed": "look at the child execution, mend what failed there, and retry from the failed step: it starts another child",
    "wait_timed_out": "retry from the failed step to wait again, or have the process wait longer, publish, and retry with that",
}
# What a step makes of an answer (ok, value); StepFailed is returned, so that what led to it stays recorded.
Conclude = Callable[[Task, bool, Any], Result | StepFailed]


def begin(tools: Tools, task: Task, method: str, args: list[Any], grants: Grants) -> Result:
    """Ask; an ApplianceError when what is asked cannot be."""
    begun = prepare(tools, task, method, args, grants)

    return Result(settle=lambda: wait_for(*begun.record()))


def wait_for(pending: PendingCall | None, value: Any) -> Result:
    """The step waits; where there is nothing to wait for, the value is its output."""
    if pending is None:
        return Result(output=value)
    return Result(status="waiting", state={"suspended": True}, next_run_at=pending.due_at)


def prepare(tools: Tools, task: Task, method: str, args: list[Any], grants: Grants) -> Begun:
    """The question, ready to be recorded; an ApplianceError when what is asked cannot be."""
    return waits_of(tools, task, grants).begin(HostCall(CALL, method, args))


def finish(tools: Tools, task: Task, conclude: Conclude) -> Result:
    """Go on with the answer, or with what stands for one when there was none in time."""
    claim = task.claim

    def answer() -> Result | StepFailed:
        pending = suspension.load_calls(claim.scope, claim.execution_id, task.run_key)[CALL]
        if pending.ok is not None:
            return conclude(task, pending.ok, pending.answer)
        return conclude(task, *waits_of(tools, task, Grants()).settle_due(pending))

    return Result(settle=answer)


def take_answer(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """The answer is the output, a fault the failure."""
    if ok:
        return Result(output=value)
    error = make_error(value["code"], value.get("failure_class", "system"), value["message"], retryable=value["retryable"])
    return StepFailed({**error, "next": NEXT.get(value["code"], error["next"])})


def waits_of(tools: Tools, task: Task, grants: Grants) -> Waits:
    """The waiting calls of the step."""
    return Waits(task.claim, task.run_key, task.step.id, grants, tools.children, tools.longest_wait_ms)
