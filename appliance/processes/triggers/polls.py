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
from appliance.core.scope import TenantScope
from appliance.governance.executor import POLL_SECONDS, PollRequest
from appliance.processes.engine.failures import from_appliance_error, make_error
from appliance.processes.host import version_grants

from .firings import Event, Firings, TriggerKey
from .models import TriggerState
from .schedule import Due

log = logging.getLogger(__name__)
# While the lease lasts no other worker polls; after that the poll counts as lost.
LEASE_MS = int(POLL_SECONDS * 1000) + 30_000
BUSY_MS = 5_000
LONGEST_PAUSE_MS = 3_600_000


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
        if not db.write(lambda: _set_next_due(due, due.next_due, lease)):
            return
        scope = TenantScope(due.tenant_id, f"trigger:{due.mark.process_id}/{due.mark.trigger_id}")
        try:
            self._source.submit(scope, partial(self.poll, scope, due, lease))
        except ConcurrencyLimited:
            db.write(lambda: _set_next_due(due, lease, now + BUSY_MS))

    def poll(self, scope: TenantScope, due: Due, lease: int) -> None:
        """Polls and commits the result; does nothing when the lease has been lost."""
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
        """Stores the cursor and the events of a poll together; inside a write."""
        now = clock.now_ms()
        if not _set_next_due(due, lease, now if polled.more and polled.items else now + due.settings["every_ms"]):
            return
        mine = (TriggerState.process_id == due.mark.process_id) & (TriggerState.trigger_id == due.mark.trigger_id)
        scope.update(TriggerState, cursor=polled.cursor, failed_in_row=0).where(mine).execute()
        origin = {"integration": due.settings["use"], "trigger": due.settings["trigger"]}
        for item in polled.items:
            self._firings.record(scope, due.mark, Event(f"item:{item.key}", {**origin, "item": dict(item.data)}))

    def _store_error(self, scope: TenantScope, due: Due, lease: int, pause: int, error: dict[str, Any]) -> None:
        """Records the failure of a poll; the cursor stays; inside a write."""
        if _set_next_due(due, lease, clock.now_ms() + pause):
            self._firings.record_failure(scope, due.mark, Event(f"poll:{lease}", {}), error)


def _set_next_due(due: Due, expected: int, next_due: int) -> bool:
    """Sets when the next poll is due; False when it was moved or the trigger changed meanwhile; inside a write."""
    mark: TriggerKey = due.mark
    changed = db.execute(
        "UPDATE trigger_state SET next_due = ? WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND digest = ? "
        "AND next_due = ?",
        (next_due, due.tenant_id, mark.process_id, mark.trigger_id, due.digest, expected),
    )
    return changed == 1


def _pause(every_ms: int, failed_in_row: int, retry_after: float | None) -> int:
    """The pause after a failure: doubles with each failure in a row, and is at least what the foreign system asks for."""
    backoff = min(every_ms << min(failed_in_row, 20), max(LONGEST_PAUSE_MS, every_ms))
    requested_ms = 0 if retry_after is None else int(retry_after * 1000)
    return max(backoff, min(requested_ms, 86_400_000))
