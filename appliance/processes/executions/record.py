"""The record of an execution for replays: its step runs, their journals, and the executions that reused runs come from."""

from dataclasses import dataclass, replace

from appliance.core.scope import TenantScope
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.engine import store
from appliance.processes.engine.claims import claim_of
from appliance.processes.engine.decide import Key, StepRun
from appliance.processes.engine.store import FINAL_LINE, Claim, JournalEntry
from appliance.processes.host.final_entries import FinalEntry, parse_final_entry
from appliance.processes.models import Execution


@dataclass(frozen=True)
class RecordedRun:
    """One step run of the record; `claim` belongs to the execution that performed it (a retry reuses step runs)."""

    run: StepRun
    claim: Claim
    is_reused: bool = False

    @property
    def is_failed(self) -> bool:
        """Whether the run itself failed or was cancelled, rather than ending with the steps inside it."""
        return self.run.status == "cancelled" or (self.run.status == "failed" and self.run.error is not None)


class ExecutionRecord:
    """Everything recorded about a finished execution, which ran `compiled`."""

    def __init__(self, scope: TenantScope, row: Execution, compiled: CompiledVersion) -> None:
        self.scope, self.row, self.compiled = scope, row, compiled
        self.claim = _claim(scope, row)
        own = {(run.path, run.iteration): RecordedRun(run, self.claim) for run in store.load_runs(scope, row.id)}
        self.runs = own | self._find_originals({key: each.run for key, each in own.items() if each.run.result_source == "reused"})

    def _find_originals(self, reused: dict[Key, StepRun]) -> dict[Key, RecordedRun]:
        """Those runs with the executions that performed them; if one has been deleted, its runs count as performed here."""
        originals: dict[Key, RecordedRun] = {}
        before = self.row.retry_of
        while reused and before is not None:
            row = self.scope.find(Execution, id=before)
            if row is None:
                break
            claim = _claim(self.scope, row)
            runs = {(run.path, run.iteration): run for run in store.load_runs(self.scope, row.id)}
            # A stop that a retry passed over is skipped in the retry only, so its status differs from the original run.
            matches = {key: run for key, run in runs.items() if key in reused and _is_original(run, reused[key])}
            originals |= {key: RecordedRun(run, claim, is_reused=True) for key, run in matches.items()}
            reused = {key: run for key, run in reused.items() if key not in matches}
            before = row.retry_of
        return originals | {key: RecordedRun(run, self.claim, is_reused=True) for key, run in reused.items()}

    def find(self, path: str, iteration: str) -> RecordedRun | None:
        return self.runs.get((path, iteration))

    def journal(self, recorded: RecordedRun) -> tuple[list[JournalEntry], FinalEntry]:
        """The calls of the last attempt, and its closing line."""
        run = recorded.run
        lines = store.load_lines(self.scope, recorded.claim.execution_id, (run.path, run.iteration, run.attempt))
        final_line = next((line for line in lines if line.call == FINAL_LINE), None)
        return [line for line in lines if line.call != FINAL_LINE], parse_final_entry(final_line)


def _is_original(run: StepRun, reused: StepRun) -> bool:
    return run.result_source != "reused" and run.status == reused.status


def _claim(scope: TenantScope, row: Execution) -> Claim:
    """A claim that only identifies the execution for its expressions; it gives no right to run it."""
    began = row.started_at or row.created_at
    return replace(claim_of(scope, row, fence=-1), started_at=began)
