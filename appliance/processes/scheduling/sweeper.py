"""Recovers work that would otherwise be lost: executions of dead workers, lost wake-ups, due timers, expired executions."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.queue import TaskQueue

from . import admission, fair_share
from .clock_jumps import ClockJumps, move_durations

log = logging.getLogger(__name__)
BATCH = 200


class Wakes(Protocol):
    """Wakes workers; both methods run inside a write."""

    def wake(self, tenant_id: str, execution_id: str) -> None: ...

    def wake_cancelled(self, tenant_id: str, execution_id: str) -> None: ...


class Sweeper:
    """One thread per process; a round reads a few small indexes and writes only when it found something."""

    def __init__(self, presence: Presence, interval_ms: int, wakes: Wakes, queue: TaskQueue, silent_seconds: float = 20.0) -> None:
        """A living owner counts as silent when its expired lease stays unchanged for `silent_seconds`, as clocks may jump."""
        self._presence = presence
        self._interval = interval_ms / 1000
        self._wakes = wakes
        self._queue = queue
        self._silent_seconds = silent_seconds
        self._silent_since: dict[tuple[str, int, int], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self.is_running_here: Callable[[str], bool] = lambda execution_id: False
        self.jumps = ClockJumps([move_durations], lambda: None)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():  # not when the start failed before
            self._thread.join()

    def _run(self) -> None:
        count = 0
        while True:
            try:
                count = self.sweep()
            except Exception as error:  # noqa: BLE001  logged there
                db.log_failure(log, error, "a round of the sweeper failed; the next one tries again")
            if self._stop.wait(0 if count >= BATCH else self._interval):
                return

    def sweep(self) -> int:
        """Runs one round; returns the size of its largest batch."""
        now = self.jumps.refresh()
        orphans, due, late = self._find_orphans(now), self._find_due(now), admission.list_expired(now, BATCH)
        if orphans or due or late:
            db.write(lambda: self._recover(orphans, due, late))
        if not self._queue.has_messages(1) and fair_share.anything_ready():
            db.write(lambda: self._wakes.wake("", ""))  # one is enough: a worker that starts something wakes the next
        return max(len(orphans), len(due), len(late))

    def _find_orphans(self, now: int) -> list[tuple[str, str, int]]:
        """Running executions whose worker is dead, has been silent too long, or does not know them."""
        rows = db.rows("SELECT tenant_id, id, fence, owner, lease_until FROM execution WHERE status IN ('running', 'cancelling')")
        alive: dict[str | None, bool] = {None: False}
        for _, _, _, owner, _ in rows:
            if owner not in alive:
                alive[owner] = self._presence.is_alive(owner)
        orphans = []
        seen = self._silent_since
        self._silent_since = {}
        for tenant_id, execution_id, fence, owner, lease_until in rows:
            if owner == self._presence.instance:
                # It may have been claimed a moment ago and not be registered yet; then its lease is still valid.
                if not self.is_running_here(execution_id) and lease_until < now:
                    orphans.append((tenant_id, execution_id, fence))
            elif not alive[owner]:
                orphans.append((tenant_id, execution_id, fence))
            elif lease_until < now:
                key = (execution_id, fence, lease_until)
                since = self._silent_since[key] = seen.get(key, clock.monotonic())
                if clock.monotonic() - since >= self._silent_seconds:
                    orphans.append((tenant_id, execution_id, fence))
        return orphans[:BATCH]

    @staticmethod
    def _find_due(now: int) -> list[tuple[str, str]]:
        rows = db.rows(
            "SELECT tenant_id, id FROM execution WHERE status IN ('waiting', 'scheduled') AND next_run_at <= ? "
            "ORDER BY next_run_at LIMIT ?",
            (now, BATCH),
        )
        return [(row[0], row[1]) for row in rows]

    def _recover(self, orphans: list[tuple[str, str, int]], due: list[tuple[str, str]], late: list[tuple[str, str]]) -> None:
        now = self.jumps.now_ms()  # the clock may have been set since
        self._requeue(orphans)
        for tenant_id, execution_id in due:
            if admission.queue_due(tenant_id, execution_id, now):
                self._wakes.wake(tenant_id, execution_id)
        for tenant_id, execution_id in late:
            admission.expire(tenant_id, execution_id, now)

    def _requeue(self, orphans: list[tuple[str, str, int]]) -> None:
        """Queues each again unless it has been claimed since; one that is being cancelled is announced by its id."""
        now = clock.now_ms()
        for tenant_id, execution_id, fence in orphans:
            changed = db.execute(
                "UPDATE execution SET status = CASE WHEN status = 'cancelling' THEN status ELSE 'queued' END, owner = NULL, "
                "enqueued_at = ?, next_run_at = NULL, wait_reason = NULL WHERE tenant_id = ? AND id = ? AND fence = ? "
                "AND status IN ('running', 'cancelling')",
                (now, tenant_id, execution_id, fence),
            )
            if changed:
                ready = admission.is_ready(tenant_id, execution_id)
                (self._wakes.wake if ready else self._wakes.wake_cancelled)(tenant_id, execution_id)
