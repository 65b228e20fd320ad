"""`wait`: for a duration or until a time; the row is the timer."""

from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.processes.failing import failed_validation
from appliance.processes.task import Result, Task, Tools


def perform(tools: Tools, task: Task) -> Result:
    """Note when to go on; a time that has passed goes on at once."""
    name = "for" if "for" in task.filled else "until"
    value = task.filled[name]
    pointer = f"{task.step.pointer}/wait/{name}"
    if not isinstance(value, str):
        raise failed_validation("this must be a text", pointer, "time_invalid")
    try:
        due = task.now + clock.parse_duration(value) if name == "for" else clock.parse_rfc3339(value)
    except ValidationFailed as error:
        raise failed_validation(error.message, pointer, "time_invalid") from error
    if due - task.now > tools.longest_wait_ms:
        days = tools.longest_wait_ms // 86_400_000
        raise failed_validation(f"an execution waits at most {days} days", pointer, "wait_too_long")
    if due <= task.now:
        return Result(output=None)
    return Result(status="waiting", next_run_at=due, state={"until": clock.rfc3339(due)})
