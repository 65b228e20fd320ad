"""`code`: runs a step's function in a fresh WebAssembly instance; the host answers and journals its calls."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core.sentences import Sentence
from appliance.processes.engine import suspension
from appliance.processes.engine.failures import LOST_CODES, StepFailed, from_sandbox, make_error
from appliance.processes.engine.store import JournalEntry, load_journal
from appliance.processes.engine.suspension import StoredVM
from appliance.processes.engine.task import Result, StepServices, Suspension, Task
from appliance.processes.engine.waits import Waits
from appliance.processes.host.final_entries import recorded_clock
from appliance.processes.host.journal import Nondeterministic, StepContext, StepHost
from appliance.processes.host.vault import Vault
from appliance.sandbox import Entropy, Limits, Outcome
from appliance.tenants.grants import SecretDestination, open_bound


@dataclass(frozen=True)
class _EarlierRun:
    """The state left by an earlier run of this attempt: the VM it was suspended in, and the journal since then."""

    stored: StoredVM | None = None
    journal: tuple[JournalEntry, ...] = ()

    @property
    def used_ms(self) -> int:
        return self.stored.used_ms if self.stored else 0


def perform(tools: StepServices, task: Task) -> Result:
    """The function's return value, or a suspended VM.

    After a crash the same attempt runs again against its journal, from the last stored VM or from the start.
    """
    earlier_run = _load_earlier_run(tools, task) if task.is_rerun else _EarlierRun()
    host = StepHost(_build_context(tools, task), list(earlier_run.journal), earlier_run.stored)
    try:
        result = _run(tools, task, host, earlier_run)
        if result.failure is None and result.snapshot is None:
            host.check_all_repeated()
    except Nondeterministic as error:
        raise StepFailed(
            make_error(
                "nondeterministic",
                "user_code",
                Sentence("the code did not repeat its earlier calls when it ran again after a crash: %(error)s", error=error),
            )
        ) from error
    if result.snapshot is None and (result.failure is None or result.failure.code not in LOST_CODES):
        host.close(result, seed_of(tools, task), task.wall_ms(tools.default_time_ms, earlier_run.used_ms))
    if result.failure is not None:
        error_object = from_sandbox(result.failure, host.fault_messages).error
        if error_object["failure_class"] == "connector" and host.retry_after:
            error_object["retry_after"] = host.retry_after
        raise StepFailed(error_object, result.logs, host.unwritten)
    if result.snapshot is not None:
        stored = StoredVM(result.snapshot, host.position, earlier_run.used_ms + round(result.wall_ms))
        suspending = Suspension(stored, host.next_due, host.unreported_clock(result.clock))
        return Result(status="waiting", journal=host.unwritten, logs=result.logs, suspending=suspending)
    return Result(output=result.output, journal=host.unwritten, logs=result.logs)


def _load_earlier_run(tools: StepServices, task: Task) -> _EarlierRun:
    claim = task.claim
    journal = load_journal(claim.scope, claim.execution_id, task.run_key)
    stored = suspension.load_vm(claim.scope, claim.execution_id, task.run_key, tools.sealer)
    if stored is not None:
        journal = [entry for entry in journal if entry.position < 0 or entry.position >= stored.position]
    return _EarlierRun(stored, tuple(journal))


def _build_context(tools: StepServices, task: Task) -> StepContext:
    claim, key, grants = task.claim, task.run_key, task.grants
    waits = Waits(claim, key, task.step.id, grants, tools.children, tools.max_wait_ms)
    return StepContext(
        claim=claim, run_key=key, grants=grants, data=tools.data, actions=tools.actions,
        submit_io=partial(tools.submit_call, claim.scope.tenant_id), is_cancelled=task.is_cancelled, waits=waits,
        vault=vault_of(tools, task), models=tools.models, answer_bytes=tools.answer_bytes,
        can_wait=task.step.settings["language"] != "php",
    )  # fmt: skip


def vault_of(tools: StepServices, task: Task) -> Vault:
    """Opens the secrets granted to this attempt, and seals and unseals their recorded values."""
    claim = task.claim
    here = SecretDestination("process", claim.process_id)
    return Vault(
        lambda name: open_bound(claim.scope, tools.sealer, name, here), tools.sealer, task.grants.secrets,
        "/".join((claim.scope.tenant_id, "journal", claim.execution_id, *map(str, task.run_key))),
    )  # fmt: skip


def _run(tools: StepServices, task: Task, host: StepHost, earlier_run: _EarlierRun) -> Outcome:
    pending = earlier_run.stored.snapshot.pending if earlier_run.stored else ()
    answered = [entry for entry in earlier_run.journal if entry.call not in pending]
    return tools.pool.run(
        task.compiled.programs[task.step.path],
        task.input,
        host,
        api=facts_of(task),
        limits=limits_of(tools, task, task.wall_ms(tools.default_time_ms, earlier_run.used_ms)),
        entropy=Entropy(seed_of(tools, task), tuple(recorded_clock(answered))),
        resume=earlier_run.stored.snapshot if earlier_run.stored else None,
    )


def facts_of(task: Task) -> dict[str, Any]:
    """The value of `api.execution` in the code."""
    return {**task.names["execution"], "tenant": task.names["tenant"]["id"], "step": task.step.id, "attempt": task.attempt}


def limits_of(tools: StepServices, task: Task, wall_ms: int) -> Limits:
    """The sandbox limits of the code for a wall time of `wall_ms`."""
    limits = task.step.limits
    return Limits(
        wall_ms=wall_ms, cpu_ms=min(limits.cpu_ms or wall_ms, wall_ms), memory_mb=limits.memory_mb or tools.default_memory_mb,
        output_bytes=tools.output_bytes, host_calls=tools.host_calls,
    )  # fmt: skip


def seed_of(tools: StepServices, task: Task) -> int:
    """The seed of random numbers: 256 bits that cannot be computed from the public data of an execution.

    It is the same whenever this attempt runs again, and different for every attempt.
    """
    text = f"seed/{task.claim.execution_id}/{task.step.path}/{task.iteration}/{task.attempt}"
    return int.from_bytes(tools.sealer.digest(text.encode()), "big")
