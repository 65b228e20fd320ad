"""Performs each kind of step: one module per kind, each with a function from a Task to a Result."""

from collections.abc import Callable, Mapping

from appliance.processes.engine.task import Result, StepServices, Task

from . import (
    agent,
    branch,
    code,
    datapool,
    file,
    for_each,
    human,
    integration,
    llm,
    ocr,
    parallel,
    pending_answers,
    process,
    rule,
    stop,
    wait,
)

PERFORMERS: Mapping[str, Callable[[StepServices, Task], Result]] = {
    "rule": rule.perform,
    "code": code.perform,
    "integration": integration.perform,
    "datapool": datapool.perform,
    "file": file.perform,
    "ocr": ocr.perform,
    "wait": wait.perform,
    "human": human.perform,
    "llm": llm.perform,
    "agent": agent.perform,
    "process": process.perform,
    "stop": stop.perform,
    "branch": branch.perform,
    "for_each": for_each.perform,
    "parallel": parallel.perform,
}
CONCLUSIONS: Mapping[str, pending_answers.Conclude] = {
    "human": human.conclude, "llm": llm.conclude, "agent": agent.conclude, "integration": integration.conclude,
}  # fmt: skip


def perform(tools: StepServices, task: Task) -> Result:
    """Performs an attempt; raises StepFailed when it fails, Cancelled when the execution is being cancelled."""
    return PERFORMERS[task.step.kind](tools, task)


def finish(tools: StepServices, task: Task) -> Result:
    """Continues a step, other than code, that has waited for an answer."""
    return pending_answers.finish(tools, task, CONCLUSIONS.get(task.step.kind, pending_answers.take_answer))
