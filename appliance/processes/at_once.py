"""Executions that run in the thread of their caller, from their start on, and whose rows are inserted with their first commit."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from appliance.core.leases import LeaseLost
from appliance.core.scope import TenantScope

from .definitions.compiled import CompiledVersion
from .engine import completion, store
from .engine.claims import claim_at_birth
from .engine.deferred import DeferredRow
from .engine.runner import Runner
from .executions import service as executions
from .executions.starting import insert_once
from .models import Execution


@dataclass(frozen=True)
class RunAtOnce:
    """One such execution; while its thread runs it, `record` may be called by any other."""

    scope: TenantScope
    deferred: DeferredRow
    claim: store.Claim

    @classmethod
    def of(cls, scope: TenantScope, row: Execution) -> "RunAtOnce":
        """The run of an execution whose row is not inserted yet."""
        deferred = DeferredRow(row, insert_once)
        return cls(scope, deferred, claim_at_birth(scope, row, deferred))

    def run(self, runner: Runner, version: CompiledVersion) -> Execution:
        """Run it until it has ended or waits, and return its row; errors such as a full disk are raised."""
        runner.run(self.claim, version)
        if self.deferred.is_ended:
            return self.deferred.row
        return executions.get_execution(self.scope, self.claim.execution_id)

    def record(self, on_finished: Callable[[], None]) -> Execution:
        """Make the execution durable while it is still running, and return its row; `on_finished` is called at its end."""
        key = (self.scope.tenant_id, self.claim.execution_id)
        completion.completion_signal.subscribe(*key, on_finished)
        try:
            with suppress(LeaseLost):  # it has ended, or waits
                store.record(self.claim)
            return executions.get_execution(self.scope, self.claim.execution_id)
        except BaseException:
            completion.completion_signal.unsubscribe(self.claim.execution_id, on_finished)
            raise
