"""Executions that run in the thread of their caller, from their start on, and whose rows are inserted with their first commit."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from appliance.core import pools
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
from .scheduling.fair_share import FairShare


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
        execution_id, signal = self.claim.execution_id, completion.completion_signal
        signal.subscribe(self.scope.tenant_id, execution_id, on_finished)
        row: Execution | None = None
        try:
            with suppress(LeaseLost):  # it has ended, or waits
                store.record(self.claim)
            row = executions.get_execution(self.scope, execution_id)
        finally:
            if row is None or row.status in store.FINISHED:
                signal.unsubscribe(execution_id, on_finished)
        return row


@dataclass(frozen=True)
class Waiter:
    """A caller that waits for an execution's end.  `on_finished` is called when it has finished, in whichever process.

    With `on_run`, the execution may run in the caller's thread, until it has ended or waits: `on_run` is called before that, and
    `on_finished` is not.
    """

    on_finished: Callable[[], None] | None = None
    on_run: Callable[[RunAtOnce], None] | None = None


class FastLane:
    """Runs executions whose callers wait, `most` at a time (0: none): in threads of its own, or in the caller's.  Thread-safe."""

    def __init__(self, runner: Runner, shares: FairShare, most: int) -> None:
        self._runner, self._shares = runner, shares
        self._threads = pools.open_pool(pools.FAST, max(1, most))
        self._slots = threading.BoundedSemaphore(most)

    def take(self) -> bool:
        """Take a slot, if one is free."""
        return self._slots.acquire(blocking=False)

    def release(self) -> None:
        """Give a slot back."""
        self._slots.release()

    def run_soon(self, claim: store.Claim, version: CompiledVersion) -> None:
        """Run a recorded execution, and give its slot back."""
        try:
            self._threads.submit(self._run, claim, version)
        except RuntimeError:  # the pool has been shut down since: the next start resumes the recorded execution
            self.release()

    def _run(self, claim: store.Claim, version: CompiledVersion) -> None:
        with self._counted(claim.scope):
            try:
                self._runner.run(claim, version)
            finally:
                self.release()

    def run_here(self, run: RunAtOnce, version: CompiledVersion, on_run: Callable[[RunAtOnce], None]) -> Execution:
        """See `RunAtOnce.run`; the slot stays taken."""
        with self._counted(run.scope):
            on_run(run)
            return run.run(self._runner, version)

    @contextmanager
    def _counted(self, scope: TenantScope) -> Iterator[None]:
        self._shares.begin_extra(scope.tenant_id)
        try:
            yield
        finally:
            self._shares.end_extra(scope.tenant_id)

    def stop(self) -> None:
        """Start nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
