"""`llm`: prompts a language model; while its profile does not exist, the step waits for it or for a person's answer."""

from concurrent.futures import wait
from contextvars import copy_context
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine import suspension
from appliance.processes.engine.failures import StepFailed, from_appliance_error
from appliance.processes.engine.store import JournalEntry
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.engine.waits import MODEL
from appliance.processes.host.journal import Cancelled
from appliance.processes.host.model_calls import GENERATE, place_of, recorded_args

from . import pending_answers

# Each request has the timeout of the profile; this one limits all of them together.
LONGEST_MS = 15 * 60_000
POLL_SECONDS = 0.1


def perform(tools: StepServices, task: Task) -> Result:
    """The model's answer: text, or JSON that matches `output`.  The step needs no grant for its profile."""
    prompt = prompt_of(task)
    if not tools.models.has_profile(task.claim, prompt["profile"]):
        return _park(tools, task, prompt)
    deadline = clock.monotonic() + task.wall_ms(LONGEST_MS) / 1000
    where = place_of(task.step.path, task.iteration, pending_answers.CALL)
    # In a thread of its own, so that a cancel need not wait for the model; upkeep settles the cost of such a call.
    ask = partial(copy_context().run, tools.models.ask, task.claim, prompt, where, deadline)
    call = tools.submit_io(task.claim.scope.tenant_id, ask)
    while not wait([call], POLL_SECONDS).done:
        if task.is_cancelled():
            raise Cancelled
    try:
        generated = call.result()
    except ApplianceError as error:
        raise from_appliance_error(error) from error
    is_ok = generated.error is None
    args = recorded_args(GENERATE, [prompt])
    lines = [JournalEntry(
        call=pending_answers.CALL, position=0, method=GENERATE, args=args, ok=is_ok, answer=generated.to_journal(), clock=[],
    )]

    def conclude_now() -> Result | StepFailed:
        generated.settle(task.claim.scope)
        if generated.error is None:
            return Result(output=generated.value)
        failed = from_appliance_error(generated.error)
        return StepFailed(failed.error, journal=lines)

    return Result(settle=conclude_now, journal=lines)


def prompt_of(task: Task) -> dict[str, Any]:
    """The prompt of the step: its evaluated settings, with the step's input."""
    settings = task.step.settings
    prompt = {**task.filled["arguments"]}
    if "input" not in prompt and "step_input" in task.filled:
        prompt["input"] = task.filled["step_input"]
    return prompt | {name: each for name, each in settings.items() if each is not None}


def _park(tools: StepServices, task: Task, prompt: dict[str, Any]) -> Result:
    call = pending_answers.prepare(tools, task, MODEL, [prompt], Grants())

    def record() -> Result:
        if tools.models.has_profile(task.claim, prompt["profile"]):
            return Result(status="pending")
        return pending_answers.wait_for(*call.record())

    return Result(settle=record)


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """Takes a person's answer as the output; runs the step again once the profile exists."""
    if not ok:
        return pending_answers.take_answer(task, ok, value)
    if "profile" in value:
        suspension.drop_step(task.claim.scope, task.claim.execution_id, task.step.path, task.iteration)
        return Result(status="pending")
    return Result(output=value["answer"])
