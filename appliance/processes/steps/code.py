"""`code`: a step's function in a fresh WebAssembly instance; its calls are answered and journalled by the host."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core.sentences import Sentence
from appliance.processes.engine import suspension
from appliance.processes.engine.failing import LOST_CODES, StepFailed, from_sandbox, make_error
from appliance.processes.engine.store import JournalEntry, load_journal
from appliance.processes.engine.suspension import StoredVM
from appliance.processes.engine.task import Result, Suspending, Task, Tools
from appliance.processes.engine.waits import Waits
from appliance.processes.host.closing import recorded_clock
from appliance.processes.host.journal import Nondeterministic, Reach, StepHost
from appliance.processes.host.vault import Vault
from appliance.sandbox import Entropy, Limits, Outcome
from appliance.tenants.grants import Destination, open_bound


@dataclass(frozen=True)
class _Past:
    """What a former run of this attempt left: the VM it was suspended in, and the journal of what came after."""

    stored: StoredVM | None = None
    journal: tuple[JournalEntry, ...] = ()

    @property
    def used_ms(self) -> int:
        return self.stored.used_ms if self.stored else 0


def perform(tools: Tools, task: Task) -> Result:
    """The function's return value, or a suspended VM.

    After a crash the same attempt runs again against its journal, from the last VM that was stored, else from its start.
    """
    past = _past_of(tools, task) if task.is_rerun else _Past()
    host = StepHost(_reach(tools, task), list(past.journal), past.stored)
    try:
        outcome = _run(tools, task, host, past)
        if outcome.failure is None and outcome.snapshot is None:
            host.check_all_asked()
    except Nondeterministic as error:
        raise StepFailed(
            make_error(
                "nondeterministic",
                "user_code",
                Sentence("after a crash the code did something else than before: %(error)s", error=error),
            )
        ) from error
    if outcome.snapshot is None and (outcome.failure is None or outcome.failure.code not in LOST_CODES):
        host.close(outcome, seed_of(tools, task), task.wall_ms(tools.default_time_ms, past.used_ms))
    if outcome.failure is not None:
        error_object = from_sandbox(outcome.failure).error
        if error_object["failure_class"] == "connector" and host.retry_after:
            error_object["retry_after"] = host.retry_after
        raise StepFailed(error_object, outcome.logs, host.unwritten)
    if outcome.snapshot is not None:
        stored = StoredVM(outcome.snapshot, host.position, past.used_ms + round(outcome.wall_ms))
        suspending = Suspending(stored, host.next_due, host.untold(outcome.clock))
        return Result(status="waiting", journal=host.unwritten, logs=outcome.logs, suspending=suspending)
    return Result(output=outcome.output, journal=host.unwritten, logs=outcome.logs)


def _past_of(tools: Tools, task: Task) -> _Past:
    claim = task.claim
    journal = load_journal(claim.scope, claim.execution_id, task.run_key)
    stored = suspension.load_vm(claim.scope, claim.execution_id, task.run_key, tools.sealer)
    if stored is not None:
        journal = [entry for entry in journal if entry.position < 0 or entry.position >= stored.position]
    return _Past(stored, tuple(journal))


def _reach(tools: Tools, task: Task) -> Reach:
    claim, key, grants = task.claim, task.run_key, task.grants
    waits = Waits(claim, key, task.step.id, grants, tools.children, tools.longest_wait_ms)
    return Reach(
        claim, key, grants, tools.data, tools.actions, partial(tools.submit_call, claim.scope.tenant_id), task.is_cancelled,
        waits, vault_of(tools, task), tools.models, tools.answer_bytes, task.step.settings["language"] != "php",
    )  # fmt: skip


def vault_of(tools: Tools, task: Task) -> Vault:
    """The secrets this attempt may have, and may have had."""
    claim = task.claim
    here = Destination("process", claim.process_id)
    return Vault(
        lambda name: open_bound(claim.scope, tools.sealer, name, here), tools.sealer, task.grants.secrets,
        "/".join((claim.scope.tenant_id, "journal", claim.execution_id, *map(str, task.run_key))),
    )  # fmt: skip


def _run(tools: Tools, task: Task, host: StepHost, past: _Past) -> Outcome:
    before = past.stored.snapshot.pending if past.stored else ()
    return tools.pool.run(
        task.compiled.programs[task.step.path],
        task.input,
        host,
        api=facts_of(task),
        limits=limits_of(tools, task, task.wall_ms(tools.default_time_ms, past.used_ms)),
        entropy=Entropy(seed_of(tools, task), tuple(recorded_clock([each for each in past.journal if each.call not in before]))),
        resume=past.stored.snapshot if past.stored else None,
    )


def facts_of(task: Task) -> dict[str, Any]:
    """What the code sees as `api.execution`."""
    return {**task.names["execution"], "tenant": task.names["tenant"]["id"], "step": task.step.id, "attempt": task.attempt}


def limits_of(tools: Tools, task: Task, wall_ms: int) -> Limits:
    """What the code may use within `wall_ms`."""
    limits = task.step.limits
    return Limits(
        wall_ms=wall_ms, cpu_ms=min(limits.cpu_ms or wall_ms, wall_ms), memory_mb=limits.memory_mb or tools.default_memory_mb,
        output_bytes=tools.output_bytes, host_calls=tools.host_calls,
    )  # fmt: skip


def seed_of(tools: Tools, task: Task) -> int:
    """The seed of random numbers, 256 bits that nobody can compute from what is shown of an execution.

    The same whenever this attempt runs again, another for every attempt.
    """
    text = f"seed/{task.claim.execution_id}/{task.step.path}/{task.iteration}/{task.attempt}"
    return int.from_bytes(tools.sealer.digest(text.encode()), "big")
