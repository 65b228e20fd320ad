"""Finds what nobody will do otherwise: work of dead workers, lost wake-ups, due timers, and rows past their time."""

import logging
import threading
from collections.abc import Callable

from appliance.core import clock, db
from appliance.core.presence import Presence
from appliance.core.queue import TaskQueue

log = logging.getLogger(__name__)
LOST_AFTER_MS = 1_000
BACKLOG_LOST_AFTER_MS = 10_000
BACKLOG_SECONDS = 10.0
WAKE = "execution"
BATCH = 200


class Sweeper:
    """One thread per process; every round is a few reads of a small index, and a write only when something was found."""

    def __init__(self, presence: Presence, interval_ms: int, wake: Callable[[str, str], None], queue: TaskQueue) -> None:
        self._presence = presence
        self._interval = interval_ms / 1000
        self._wake = wake
        self._queue = queue
        self._backlog_looked_at = clock.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self.is_running_here: Callable[[str], bool] = lambda execution_id: False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                self.sweep()
            except Exception:
                log.exception("a round of the sweeper failed; the next one tries again")
            if self._stop.wait(self._interval):
                return

    def sweep(self) -> int:
        """One round; answers how many executions were woken."""
        found = [*self._orphans(), *self._due(), *self._forgotten()]
        if found:
            db.write(lambda: self._requeue(found))
        return len(found)

    def _orphans(self) -> list[tuple[str, str, int]]:
        """Running executions whose worker is dead, silent for longer than its lease, or does not know of them."""
        now = clock.now_ms()
        rows = db.rows("SELECT tenant_id, id, fence, owner, lease_until FROM execution WHERE status IN ('running', 'cancelling')")
        alive: dict[str | None, bool] = {None: False}
        for _, _, _, owner, _ in rows:
            if owner not in alive:
                alive[owner] = self._presence.is_alive(owner)
        found = []
        for tenant_id, execution_id, fence, owner, lease_until in rows:
            if owner == self._presence.instance:
                # Taken a moment ago and not yet registered is not lost: the lease tells.
                if not self.is_running_here(execution_id) and lease_until < now:
                    found.append((tenant_id, execution_id, fence))
            elif not alive[owner] or lease_until < now:
                found.append((tenant_id, execution_id, fence))
        return found[:BATCH]

    def _due(self) -> list[tuple[str, str, int]]:
        rows = db.rows(
            "SELECT tenant_id, id, fence FROM execution WHERE status IN ('waiting', 'scheduled') AND next_run_at <= ? "
            "ORDER BY next_run_at LIMIT ?",
            (clock.now_ms(), BATCH),
        )
        return [(row[0], row[1], row[2]) for row in rows]

    def _forgotten(self) -> list[tuple[str, str, int]]:
        """Queued executions whose message was taken by a worker that died before it claimed them."""
        if self._queue.depth() == 0:
            return self._queued_before(clock.now_ms() - LOST_AFTER_MS)
        # Behind a backlog the messages themselves are read: seldom, and for what has waited longest.
        if clock.monotonic() - self._backlog_looked_at < BACKLOG_SECONDS:
            return []
        self._backlog_looked_at = clock.monotonic()
        oldest = self._queued_before(clock.now_ms() - BACKLOG_LOST_AFTER_MS)
        held = self._queue.waiting(WAKE) if oldest else set()
        return [found for found in oldest if found[:2] not in held]

    @staticmethod
    def _queued_before(moment: int) -> list[tuple[str, str, int]]:
        rows = db.rows(
            "SELECT tenant_id, id, fence FROM execution WHERE status = 'queued' AND wait_reason IS NULL AND enqueued_at < ? "
            "ORDER BY enqueued_at LIMIT ?",
            (moment, BATCH),
        )
        return [(row[0], row[1], row[2]) for row in rows]

    def _requeue(self, found: list[tuple[str, str, int]]) -> None:
        """Queue each again, unless it has been claimed since it was looked at."""
        now = clock.now_ms()
        for tenant_id, execution_id, fence in found:
            changed = db.execute(
                "UPDATE execution SET status = CASE WHEN status = 'cancelling' THEN status ELSE 'queued' END, owner = NULL, "
                "enqueued_at = ?, next_run_at = NULL, wait_reason = CASE WHEN started_at IS NULL AND EXISTS (SELECT 1 "
                "FROM process p WHERE p.tenant_id = execution.tenant_id AND p.id = process_id AND p.paused_at IS NOT NULL) "
                "THEN 'paused' END WHERE tenant_id = ? AND id = ? AND fence = ? "
                "AND status IN ('queued', 'waiting', 'scheduled', 'running', 'cancelling')",
                (now, tenant_id, execution_id, fence),
            )
            if changed:
                self._wake(tenant_id, execution_id)
