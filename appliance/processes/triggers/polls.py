"""Polls integrations for new items: the cursor is stored together with the events; errors make polls less frequent."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from appliance.connectors.contract import Polled
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ConcurrencyLimited
from appliance.core.leases import LeaseLost, LeaseTable
from appliance.core.scope import TenantScope
from appliance.governance.executor import POLL_SECONDS, PollRequest
from appliance.processes.engine.failures import from_appliance_error, make_error
from appliance.processes.host import version_grants

from .firings import Event, Firings
from .models import TriggerState
from .schedule import Due

log = logging.getLogger(__name__)
# While the lease lasts no other worker polls; after that the poll counts as lost.
LEASE_MS = int(POLL_SECONDS * 1000) + 30_000
BUSY_MS = 5_000
LONGEST_PAUSE_MS = 3_600_000
# The digest is part of the key: when the trigger changes, a poll of the earlier one is discarded.
LEASES = LeaseTable(TriggerState, ("tenant_id", "process_id", "trigger_id", "digest"), lease="next_due", stops_with_tenant=True)


class PollSource(Protocol):
    """Polls integrations under governance; implemented by the governed executor."""

    def submit(self, scope: TenantScope, work: Callable[[], Any]) -> "Future[Any]":
        """Runs `work` in a thread for foreign calls; raises ConcurrencyLimited when the tenant has too many."""

    def poll(self, scope: TenantScope, request: PollRequest) -> Polled:
        """The new items; raises a coded error when the poll fails."""


class Polls:
    """Polls due integrations; each is polled by one worker at a time."""

    def __init__(self, firings: Firings, source: PollSource) -> None:
        self._firings, self._source = firings, source

    def start_poll(self, due: Due) -> None:
        """Leases the poll, so that no other worker takes it, and runs it in a thread."""
        now = clock.now_ms()
        lease = now + LEASE_MS
        if not db.write(lambda: LEASES.claim(_key(due), due.next_due, until=lease)):
            return
        scope = TenantScope(due.tenant_id, f"trigger:{due.mark.process_id}/{due.mark.trigger_id}")
        try:
            self._source.submit(scope, partial(self.poll, scope, due, lease))
        except ConcurrencyLimited:
            db.write(lambda: LEASES.release(_key(due), lease, at=now + BUSY_MS))

    def poll(self, scope: TenantScope, due: Due, lease: int) -> None:
        """Polls and commits the result; does nothing when the lease has been lost."""
        try:
            self._poll(scope, due, lease)
        except LeaseLost:
            log.warning("the poll of %s took longer than its lease, or its trigger changed; its result is discarded", scope.actor)

    def _poll(self, scope: TenantScope, due: Due, lease: int) -> None:
        row = scope.find(TriggerState, process_id=due.mark.process_id, trigger_id=due.mark.trigger_id)
        if row is None or row.next_due != lease:
            return
        request = PollRequest(due.settings["use"], due.settings["trigger"], due.settings["query"], row.cursor)
        try:
            version_grants.refuse_suspended_process(scope, due.mark.process_id)  # its credential is not used either
            polled = self._source.poll(scope, request)
        except ApplianceError as error:
            failure = from_appliance_error(error).error
            pause = _pause(due.settings["every_ms"], row.failed_in_row, error.extra.get("retry_after"))
            db.write(lambda: self._store_error(scope, due, lease, pause, failure))
        except Exception:
            log.exception("A poll failed.")
            failure = make_error("internal", "system", "the appliance failed while polling; see its log for the reason")
            pause = _pause(due.settings["every_ms"], row.failed_in_row, None)
            db.write(lambda: self._store_error(scope, due, lease, pause, failure))
        else:
            db.write(lambda: self._store_items(scope, due, lease, polled))

    def _store_items(self, scope: TenantScope, due: Due, lease: int, polled: Polled) -> None:
        """Stores the cursor and the events of a poll together; inside a write.  LeaseLost."""
        now = clock.now_ms()
        next_due = now if polled.more and polled.items else now + due.settings["every_ms"]
        LEASES.settle(_key(due), lease, {"next_due": next_due, "cursor": polled.cursor, "failed_in_row": 0})
        origin = {"integration": due.settings["use"], "trigger": due.settings["trigger"]}
        for item in polled.items:
            self._firings.record(scope, due.mark, Event(f"item:{item.key}", {**origin, "item": dict(item.data)}))

    def _store_error(self, scope: TenantScope, due: Due, lease: int, pause: int, error: dict[str, Any]) -> None:
        """Records the failure of a poll; the cursor stays; inside a write.  LeaseLost."""
        LEASES.settle(_key(due), lease, {"next_due": clock.now_ms() + pause})
        self._firings.record_failure(scope, due.mark, Event(f"poll:{lease}", {}), error)


def _key(due: Due) -> tuple[str, str, str, str]:
    return due.tenant_id, due.mark.process_id, due.mark.trigger_id, due.digest


def _pause(every_ms: int, failed_in_row: int, retry_after: float | None) -> int:
    """The pause after a failure: doubles with each failure in a row, and is at least what the foreign system asks for."""
    backoff = min(every_ms << min(failed_in_row, 20), max(LONGEST_PAUSE_MS, every_ms))
    requested_ms = 0 if retry_after is None else int(retry_after * 1000)
    return max(backoff, min(requested_ms, 86_400_000))
