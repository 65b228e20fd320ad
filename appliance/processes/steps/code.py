"""`code`: TypeScript or JavaScript in a fresh WebAssembly instance; its calls are answered and journalled by the host."""

import hashlib

from appliance.processes.failing import LOST_CODES, StepFailed, from_sandbox, make_error
from appliance.processes.journal import Nondeterministic, Reach, StepHost, recorded_clock
from appliance.processes.store import load_journal
from appliance.processes.task import Result, Task, Tools
from appliance.sandbox import Entropy, Limits, Outcome


def perform(tools: Tools, task: Task) -> Result:
    """The function's return value.  After a crash the same attempt runs again against its journal."""
    recorded = load_journal(task.claim.scope, task.claim.execution_id, task.run_key) if task.is_rerun else []
    reach = Reach(
        task.claim, task.run_key, task.step.grants or task.compiled.definition.grants, tools.data, tools.actions,
        tools.submit_io, task.is_cancelled, tools.answer_bytes,
    )  # fmt: skip
    host = StepHost(reach, recorded)
    try:
        outcome = _run(tools, task, host, Entropy(seed_of(task), tuple(recorded_clock(recorded))))
        if outcome.failure is None:
            host.check_all_asked()
    except Nondeterministic as error:
        raise StepFailed(
            make_error("nondeterministic", "user_code", f"after a crash the code did something else than before: {error}")
        ) from error
    if outcome.failure is None or outcome.failure.code not in LOST_CODES:
        host.close(outcome, seed_of(task), task.wall_ms(tools.default_time_ms))
    if outcome.failure is not None:
        error_object = from_sandbox(outcome.failure).error
        if error_object["failure_class"] == "connector" and host.retry_after:
            error_object["retry_after"] = host.retry_after
        raise StepFailed(error_object, outcome.logs, host.unwritten)
    return Result(output=outcome.output, journal=host.unwritten, logs=outcome.logs)


def _run(tools: Tools, task: Task, host: StepHost, entropy: Entropy) -> Outcome:
    limits = task.step.limits
    wall = task.wall_ms(tools.default_time_ms)
    return tools.pool.run(
        task.compiled.programs[task.step.path],
        task.input,
        host,
        api={**task.names["execution"], "tenant": task.names["tenant"]["id"], "step": task.step.id, "attempt": task.attempt},
        limits=Limits(
            wall_ms=wall, cpu_ms=min(limits.cpu_ms or wall, wall), memory_mb=limits.memory_mb or tools.default_memory_mb,
            output_bytes=tools.output_bytes, host_calls=tools.host_calls,
        ),
        entropy=entropy,
    )  # fmt: skip


def seed_of(task: Task) -> int:
    """The seed of Math.random: the same whenever this attempt runs again, another for every attempt."""
    text = f"{task.claim.execution_id}/{task.step.path}/{task.iteration}/{task.attempt}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
