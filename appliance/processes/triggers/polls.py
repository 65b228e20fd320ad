"""Integrations that are asked for what is new: the cursor moves with the events it brought, and errors make it ask less often."""

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
from appliance.processes.engine.failing import from_coded, make_error
from appliance.processes.host import version_grants

from .firing import Event, Firings, Mark
from .models import TriggerState
from .schedule import Due

log = logging.getLogger(__name__)
# Nobody else asks meanwhile; after that whoever asked has died.
LEASE_MS = int(POLL_SECONDS * 1000) + 30_000
BUSY_MS = 5_000
LONGEST_PAUSE_MS = 3_600_000


class Source(Protocol):
    """Where integrations are asked: the governed executor."""

    def submit(self, scope: TenantScope, work: Callable[[], Any]) -> "Future[Any]":
        """Run it in a thread for what waits for foreign systems; ConcurrencyLimited when the tenant has too much there."""

    def poll(self, scope: TenantScope, request: PollRequest) -> Polled:
        """What is new, or a coded error."""


class Polls:
    """Asks integrations that are due, each by one worker at a time."""

    def __init__(self, firings: Firings, source: Source) -> None:
        self._firings, self._source = firings, source

    def begin(self, due: Due) -> None:
        """Take the poll, so that nobody else does, and ask in a thread of its own."""
        now = clock.now_ms()
        lease = now + LEASE_MS
        if not db.write(lambda: _move(due, due.next_due, lease)):
            return
        scope = TenantScope(due.tenant_id, f"trigger:{due.mark.process_id}/{due.mark.trigger_id}")
        try:
            self._source.submit(scope, partial(self.ask, scope, due, lease))
        except ConcurrencyLimited:
            db.write(lambda: _move(due, lease, now + BUSY_MS))

    def ask(self, scope: TenantScope, due: Due, lease: int) -> None:
        """Ask, and commit what came of it; nothing when the poll has been taken by somebody else since."""
        row = scope.find(TriggerState, process_id=due.mark.process_id, trigger_id=due.mark.trigger_id)
        if row is None or row.next_due != lease:
            return
        request = PollRequest(due.settings["use"], due.settings["trigger"], due.settings["query"], row.cursor)
        try:
            version_grants.refuse_suspended_process(scope, due.mark.process_id)  # its credential is not used either
            found = self._source.poll(scope, request)
        except ApplianceError as error:
            told = from_coded(error).error
            pause = _pause(due.settings["every_ms"], row.failed_in_row, error.extra.get("retry_after"))
            db.write(lambda: self._note_error(scope, due, lease, pause, told))
        except Exception:
            log.exception("a poll failed")
            told = make_error("internal", "system", "the appliance failed while asking; its log has the reason")
            pause = _pause(due.settings["every_ms"], row.failed_in_row, None)
            db.write(lambda: self._note_error(scope, due, lease, pause, told))
        else:
            db.write(lambda: self._note_found(scope, due, lease, found))

    def _note_found(self, scope: TenantScope, due: Due, lease: int, found: Polled) -> None:
        """Inside a write: the cursor and the events it brought, together."""
        now = clock.now_ms()
        if not _move(due, lease, now if found.more and found.items else now + due.settings["every_ms"]):
            return
        mine = (TriggerState.process_id == due.mark.process_id) & (TriggerState.trigger_id == due.mark.trigger_id)
        scope.update(TriggerState, cursor=found.cursor, failed_in_row=0).where(mine).execute()
        about = {"integration": due.settings["use"], "trigger": due.settings["trigger"]}
        for item in found.items:
            self._firings.note(scope, due.mark, Event(f"item:{item.key}", {**about, "item": dict(item.data)}))

    def _note_error(self, scope: TenantScope, due: Due, lease: int, pause: int, error: dict[str, Any]) -> None:
        """Inside a write: the failure is told, and the cursor stays."""
        if _move(due, lease, clock.now_ms() + pause):
            self._firings.note_failure(scope, due.mark, Event(f"poll:{lease}", {}), error)


def _move(due: Due, expected: int, next_due: int) -> bool:
    """Inside a write: the next poll is due then, unless somebody has moved it or changed the trigger."""
    mark: Mark = due.mark
    changed = db.execute(
        "UPDATE trigger_state SET next_due = ? WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND digest = ? "
        "AND next_due = ?",
        (next_due, due.tenant_id, mark.process_id, mark.trigger_id, due.digest, expected),
    )
    return changed == 1


def _pause(every_ms: int, failed_in_row: int, retry_after: float | None) -> int:
    """Ever longer after each failure in a row, at least what the foreign system asks for."""
    longer = min(every_ms << min(failed_in_row, 20), max(LONGEST_PAUSE_MS, every_ms))
    asked = 0 if retry_after is None else int(retry_after * 1000)
    return max(longer, min(asked, 86_400_000))
