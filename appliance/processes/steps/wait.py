"""`wait`: waits for a duration, until a time or for an event; the database row is the timer."""

from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.processes.definitions.nodes import MAX_EVENT_NAME, Grants
from appliance.processes.engine.failures import failed_validation
from appliance.processes.engine.task import Result, StepServices, Task

from . import pending_answers


def perform(tools: StepServices, task: Task) -> Result:
    """Stores when to continue; a time in the past continues at once."""
    if task.step.settings["awaits"] == "event":
        return _event(tools, task)
    name = "for" if "for" in task.filled else "until"
    value = task.filled[name]
    pointer = f"{task.step.pointer}/wait/{name}"
    if not isinstance(value, str):
        raise failed_validation("this must be a text", pointer, "time_invalid")
    try:
        due = task.now + clock.parse_duration(value) if name == "for" else clock.parse_rfc3339(value)
    except ValidationFailed as error:
        raise failed_validation(error.message, pointer, "time_invalid") from error
    if due - task.now > tools.max_wait_ms:
        days = tools.max_wait_ms // 86_400_000
        raise failed_validation(Sentence("an execution waits at most %(days)s days", days=days), pointer, "wait_too_long")
    if due <= task.now:
        return Result(output=None)
    measured_by = clock.boot_id() if name == "for" else None
    return Result(status="waiting", next_run_at=due, state={"until": clock.rfc3339(due)}, measured_by=measured_by)


def _event(tools: StepServices, task: Task) -> Result:
    """Waits for an event sent to the execution; its data is the output."""
    name, timeout = (task.filled["arguments"].get(member) for member in ("event", "timeout"))
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_EVENT_NAME:
        message = Sentence("an event name is a text of 1 to %(max_event_name)s characters", max_event_name=MAX_EVENT_NAME)
        raise failed_validation(message, f"{task.step.pointer}/wait/event", "event_invalid")
    pointer = f"{task.step.pointer}/wait/timeout"
    try:
        if timeout is not None:
            clock.parse_duration(timeout if isinstance(timeout, str) else repr(timeout))
    except ValidationFailed as error:
        raise failed_validation(error.message, pointer, "time_invalid") from error
    return pending_answers.begin(tools, task, "events.wait", [name, {"timeout": timeout}], Grants())
