"""`human`: requests a decision or input from a person; a rejection is a normal output, `on_timeout` applies on expiry."""

from typing import Any

from appliance.core.sentences import Sentence
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.failures import StepFailed, make_error
from appliance.processes.engine.task import Result, StepServices, Task

from . import pending_answers

_NEXT = "retry from the failed step to ask again, or set a longer `expires` or another `on_timeout`, and publish"


def perform(tools: StepServices, task: Task) -> Result:
    """Creates the request; the step needs no grant for it."""
    return pending_answers.begin(tools, task, "human.request", [task.filled["arguments"]], Grants(human=True))


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """The output `{status, answer, comment, decided_by, decided_at, request_id}`, or the failure on expiry."""
    on_timeout = task.step.settings["on_timeout"]
    if not ok or value["status"] != "expired" or on_timeout == "continue":
        return pending_answers.take_answer(task, ok, value)
    if on_timeout == "reject":
        return Result(output={**value, "status": "rejected"})
    error = make_error(
        "approval_expired", "timeout", Sentence("nobody decided %(request_id)s in time", request_id=value["request_id"])
    )
    return StepFailed({**error, "next": _NEXT})
