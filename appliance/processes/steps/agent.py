"""`agent`: starts an agent run and waits for its output; the run has the grants of the step, or else of the process."""

from typing import Any

from appliance.core import clock
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.failures import StepFailed
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.host.agent_runs import AgentRunRequest

from . import pending_answers

NEXT = "look at the trace of the run, fix the cause of its failure, and retry from the failed step to start another run"


def perform(tools: StepServices, task: Task) -> Result:
    """Starts the run in the transaction that suspends the step, so that after a crash there are both or neither."""
    settings = task.step.settings
    payload = task.filled.get("input", task.input)
    template = task.step.templates.get("input")
    is_trusted = settings["trusted"] or (template is not None and not template.expressions)
    request = AgentRunRequest(settings["use"], payload, task.run_key, task.step.id, task.grants, is_trusted)
    prepared = tools.agents.prepare(task.claim, request)
    waits = pending_answers.waits_of(tools, task, Grants())
    due_at = None if settings["timeout_ms"] is None else clock.now_ms() + settings["timeout_ms"]

    def record() -> Result:
        return pending_answers.wait_for(waits.await_run(pending_answers.CALL, prepared.insert(), settings["use"], due_at), None)

    return Result(settle=record)


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """The run's output, or the failure of the step with the run's error."""
    result = pending_answers.take_answer(task, ok, value)
    if isinstance(result, StepFailed) and not ok and value["code"] == "agent_failed":
        details = {name: value[name] for name in ("run_id", "run_error") if name in value}
        return StepFailed({**result.error, **details, "next": value.get("next", NEXT)})
    return result
