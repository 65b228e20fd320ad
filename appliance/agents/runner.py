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
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import runs, step_updates, store, versions
from .journal import Entry, Journal
from .models import AgentRunRow
from .run_segment import RunDependencies, RunSegment, RunSuspended, Stopping
from .store import Claim, Fenced, RunCancelled

log = logging.getLogger(__name__)
MOST_CLAIMS = 20


class Runner:
    """Drives runs on the calling thread.  Thread-safe; the fence ensures that each run has one driver."""

    def __init__(self, presence: Presence, dependencies: RunDependencies, lease_seconds: int) -> None:
        self.presence = presence
        self.dependencies = dependencies
        self.active: dict[str, Claim] = {}
        self._lease_seconds = lease_seconds
        self._expired_leases: dict[str, tuple[int, float]] = {}  # of other workers, and since when (monotonic seconds)
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
            except Fenced:
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
        return row.status == "running" and self.is_orphan(row.id, row.owner, row.lease_until)

    def is_orphan(self, run_id: str, owner: str | None, lease_until: int) -> bool:
        """Whether a run marked as running has no driver: its worker is dead, or silent for longer than its lease."""
        is_late = lease_until < clock.now_ms()
        if owner == self.presence.instance:
            return run_id not in self.active and is_late
        return owner is None or not self.presence.is_alive(owner) or (is_late and self._is_silent(run_id, lease_until))

    def _is_silent(self, run_id: str, lease_until: int) -> bool:
        """Whether an expired lease has not been renewed for two thirds of its length.

        A change of the wall clock can expire a lease at once, so the wait is measured on the monotonic clock.
        """
        last_lease, since = self._expired_leases.get(run_id, (None, 0.0))
        if last_lease != lease_until:
            self._expired_leases[run_id] = (lease_until, clock.monotonic())
            return False
        if clock.monotonic() - since < self._lease_seconds * 2 / 3:
            return False
        del self._expired_leases[run_id]
        return True

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
        except Fenced:
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
        columns = {name: db.dump_json(value) for name, value in result.items()}
        changes = {"status": status, "finished_at": clock.now_ms(), "owner": None, **columns}
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
        except Fenced:
            log.warning("the failed run has been claimed by another worker")


_NO_DEFINITION: Any = None
Wake = Callable[[str, str], None]
