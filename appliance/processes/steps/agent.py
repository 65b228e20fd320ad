"""`agent`: starts a run of an agent and waits for its output; the run reaches what the step, or else the process, is granted."""

from typing import Any

from appliance.core import clock
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.failing import StepFailed
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.host.agent_runs import WantedRun

from . import asking

NEXT = "look at the trace of the run, mend what ended it, and retry from the failed step: it starts another run"


def perform(tools: Tools, task: Task) -> Result:
    """Start the run in the commit that has the step wait: after a crash there are both or neither."""
    settings = task.step.settings
    given = task.filled.get("input", task.input)
    written = task.step.templates.get("input")
    is_trusted = settings["trusted"] or (written is not None and not written.expressions)
    wanted = WantedRun(settings["use"], given, task.run_key, task.step.id, task.grants, is_trusted)
    prepared = tools.agents.prepare(task.claim, wanted)
    waits = asking.waits_of(tools, task, Grants())
    due_at = None if settings["timeout_ms"] is None else clock.now_ms() + settings["timeout_ms"]

    def record() -> Result:
        return asking.wait_for(waits.await_run(asking.CALL, prepared.insert(), settings["use"], due_at), None)

    return Result(settle=record)


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """The run's output, or how it failed."""
    concluded = asking.take_answer(task, ok, value)
    if isinstance(concluded, StepFailed) and not ok and value["code"] == "agent_failed":
        more = {name: value[name] for name in ("run_id", "run_error") if name in value}
        return StepFailed({**concluded.error, **more, "next": value.get("next", NEXT)})
    return concluded
