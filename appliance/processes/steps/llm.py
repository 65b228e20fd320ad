"""`llm`: asks a language model; without its profile the step waits until there is one, or a person answers in its place."""

from concurrent.futures import wait
from contextvars import copy_context
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine import suspension
from appliance.processes.engine.failing import StepFailed, from_coded
from appliance.processes.engine.store import JournalEntry
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.engine.waits import MODEL
from appliance.processes.host.journal import Cancelled
from appliance.processes.host.model_calls import GENERATE, place_of, recorded_args

from . import asking

# Each request has the profile's own timeout; this is only the end of all of them together.
LONGEST_MS = 15 * 60_000
LOOK_SECONDS = 0.1


def perform(tools: Tools, task: Task) -> Result:
    """The model's answer: a text, or JSON that fits `output`.  The step is its own grant for its profile."""
    given = question_of(task)
    if not tools.models.has_profile(task.claim, given["profile"]):
        return _park(tools, task, given)
    ends = clock.monotonic() + task.wall_ms(LONGEST_MS) / 1000
    where = place_of(task.step.path, task.iteration, asking.CALL)
    # In a thread of its own, so that a cancel need not wait for the model; upkeep settles what that has cost.
    ask = partial(copy_context().run, tools.models.ask, task.claim, given, where, ends)
    call = tools.submit_io(task.claim.scope.tenant_id, ask)
    while not wait([call], LOOK_SECONDS).done:
        if task.is_cancelled():
            raise Cancelled
    try:
        generated = call.result()
    except ApplianceError as error:
        raise from_coded(error) from error
    is_ok = generated.error is None
    args = recorded_args(GENERATE, [given])
    lines = [JournalEntry(asking.CALL, 0, GENERATE, args, is_ok, generated.told(), [])]

    def conclude_now() -> Result | StepFailed:
        generated.settle(task.claim.scope)
        if generated.error is None:
            return Result(output=generated.value)
        failed = from_coded(generated.error)
        return StepFailed(failed.error, journal=lines)

    return Result(settle=conclude_now, journal=lines)


def question_of(task: Task) -> dict[str, Any]:
    """What the step asks."""
    settings = task.step.settings
    given = {**task.filled["arguments"]}
    if "input" not in given and "step_input" in task.filled:
        given["input"] = task.filled["step_input"]
    return given | {name: each for name, each in settings.items() if each is not None}


def _park(tools: Tools, task: Task, given: dict[str, Any]) -> Result:
    begun = asking.prepare(tools, task, MODEL, [given], Grants())

    def record() -> Result:
        if tools.models.has_profile(task.claim, given["profile"]):
            return Result(status="pending")
        return asking.wait_for(*begun.record())

    return Result(settle=record)


def conclude(task: Task, ok: bool, value: Any) -> Result | StepFailed:
    """A person's answer is the output; with the profile the step begins anew."""
    if not ok:
        return asking.take_answer(task, ok, value)
    if "profile" in value:
        suspension.drop_step(task.claim.scope, task.claim.execution_id, task.step.path, task.iteration)
        return Result(status="pending")
    return Result(output=value["answer"])
