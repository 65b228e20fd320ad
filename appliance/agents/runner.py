"""Drives runs: claims one, continues from its journal, and commits the result.

The model code takes a second and 30 MB to load, so it is imported by the first run of this process.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.errors import ApplianceError, StorageFull
from appliance.core.leases import Lease, LeaseLost, OrphanFinder
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import runs, step_updates, store, versions
from .journal import Entry, Journal
from .models import AgentRunRow
from .run_segment import RunDependencies, RunSegment, RunSuspended, Stopping
from .store import Claim, RunCancelled

log = logging.getLogger(__name__)
MOST_CLAIMS = 20


class Runner:
    """Drives runs on the calling thread.  Thread-safe; the fence ensures that each run has one driver."""

    def __init__(self, presence: Presence, dependencies: RunDependencies, lease_seconds: int) -> None:
        self.presence = presence
        self.dependencies = dependencies
        self.active: dict[str, Claim] = {}
        self._lease_seconds = lease_seconds
        self.orphans = OrphanFinder(
            store.LEASES, presence.instance, presence.is_alive, lambda key: key[1] in self.active, lease_seconds * 2 / 3
        )
        self._stopping = threading.Event()
        self._idle = threading.Condition()

    def lease(self) -> int:
        return clock.now_ms() + self._lease_seconds * 1000

    def stop(self, seconds: float) -> None:
        """Stop every run at its next step and wait up to `seconds`; the runs continue after the next start."""
        self._stopping.set()
        with self._idle:
            self._idle.wait_for(lambda: not self.active, seconds)

    def renew_leases(self) -> None:
        """Renew the leases of the runs driven here, so slow models and tools do not lose them.  Called periodically."""
        for each in list(self.active.values()):
            try:
                db.write(lambda claim=each: store.renew_lease(claim, self.lease()))  # type: ignore[misc]
            except LeaseLost:
                log.warning("the run %s is driven by another worker", each.run_id)

    def drive(self, tenant_id: str, run_id: str) -> None:
        """Drive a run until it ends or waits; does nothing if it is finished, waiting or claimed by another worker."""
        if self._stopping.is_set():
            return
        claim = db.write(lambda: self._claim(TenantScope(tenant_id, "system"), run_id))
        if claim is None:
            return
        self.active[run_id] = claim
        try:
            with logs.log_context(request_id=claim.scope.request_id):
                self._drive(claim)
        finally:
            if self.active.get(run_id) is claim:
                del self.active[run_id]
            with self._idle:
                self._idle.notify_all()

    def _claim(self, scope: TenantScope, run_id: str) -> Claim | None:
        row = scope.find(AgentRunRow, id=run_id)
        if row is None or not self._is_claimable(row):
            return None
        claim = store.claim(scope, row, self.presence.instance, self.lease())
        if claim is not None and claim.execution_id is not None and row.waiting_for is not None:
            step_updates.show_wait(scope, run_id, None)
        return claim

    def _is_claimable(self, row: AgentRunRow) -> bool:
        if row.status == "queued":
            return True
        if row.status == "waiting":
            return row.next_run_at is not None and row.next_run_at <= clock.now_ms()
        lease = Lease((row.tenant_id, row.id), row.fence, row.owner, row.lease_until)
        return row.status == "running" and self.orphans.is_abandoned(lease, clock.now_ms())  # `sweep` handles a silent owner

    # -- one segment

    def _drive(self, claim: Claim) -> None:
        from .tracing import TELEMETRY

        segment: RunSegment | None = None
        try:
            segment = self._open(claim)
            with TELEMETRY.run(claim.scope, claim.agent_id, claim.run_id):
                self._converse(segment)
        except (RunSuspended, Stopping):
            return
        except LeaseLost:
            log.warning("lost the run %s to another worker", claim.run_id)
        except StorageFull as error:
            db.log_failure(log, error, "the run stops here and is retried when its lease expires")
        except Exception:
            if self._stopping.is_set():
                log.info("the run %s was stopped in the middle of a step; it continues after the next start", claim.run_id)
                return
            log.exception("the run %s failed", claim.run_id)
            self._fail_internally(claim, segment)

    def _open(self, claim: Claim) -> RunSegment:
        journal = Journal(store.load_entries(claim.scope, claim.run_id))
        definition = versions.get_version(claim.scope, claim.agent_id, claim.version).definition
        return RunSegment(claim, journal, definition, self.lease, self._stopping.is_set)

    def _converse(self, segment: RunSegment) -> None:
        from .conversation import converse
        from .tool_calls import ToolCalls

        if segment.claim.claims >= MOST_CLAIMS:
            message = Sentence("the run was claimed %(claims)s times without progress", claims=segment.claim.claims)
            self._fail(segment, "poisoned", message)
            return
        try:
            output = converse(segment, self.dependencies, ToolCalls(segment, self.dependencies).execute)
        except RunCancelled:
            self._end(segment, "cancelled", {})
        except StorageFull:
            raise
        except ApplianceError as error:
            self._fail(segment, error.code, error.message, error.extra)
        else:
            self._end(segment, "succeeded", {"output": output})

    def _fail(self, segment: RunSegment, code: str, message: str, extra: Any = None) -> None:
        details = {name: extra[name] for name in ("reason", "budget", "call_id", "retryable") if extra and name in extra}
        self._end(segment, "failed", {"error": {"code": code, "message": message, **details}})

    @staticmethod
    def _end(segment: RunSegment, status: str, result: dict[str, Any]) -> None:
        changes = {"status": status, "finished_at": clock.now_ms(), "owner": None, **result}
        claim = segment.claim
        note_end = partial(runs.note_end, claim.scope, claim.agent_id, claim.run_id, status, result.get("error"))
        segment.commit(Entry("ended", claim.used.turns, data={"status": status, **result}), also=note_end, changes=changes)

    def _fail_internally(self, claim: Claim, segment: RunSegment | None) -> None:
        """End the run with the code `internal`; the reason is only in the log."""
        opened = segment or RunSegment(
            claim, Journal(store.load_entries(claim.scope, claim.run_id)), _NO_DEFINITION, self.lease, bool
        )
        try:
            self._fail(opened, "internal", "the appliance failed while driving this run; see its log for the reason")
        except LeaseLost:
            log.warning("the failed run has been claimed by another worker")


_NO_DEFINITION: Any = None
Wake = Callable[[str, str], None]
