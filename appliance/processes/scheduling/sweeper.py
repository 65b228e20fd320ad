"""Finds what nobody will do otherwise: work of dead workers, lost wake-ups, due timers, and what came too late to begin."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.queue import TaskQueue

from . import admission, turns
from .clock_jumps import ClockJumps, move_durations

log = logging.getLogger(__name__)
BATCH = 200


class Wakes(Protocol):
    """How workers are woken; both inside a write."""

    def wake(self, tenant_id: str, execution_id: str) -> None: ...

    def wake_cancelled(self, tenant_id: str, execution_id: str) -> None: ...


class Sweeper:
    """One thread per process; every round is a few reads of small indexes, and a write only when something was found."""

    def __init__(self, presence: Presence, interval_ms: int, wakes: Wakes, queue: TaskQueue, silent_seconds: float = 20.0) -> None:
        """An owner that lives is silent once its lease is over and stays as it is for `silent_seconds`: clocks may jump."""
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
        found = 0
        while True:
            try:
                found = self.sweep()
            except Exception as error:  # noqa: BLE001  logged there
                db.log_failure(log, error, "a round of the sweeper failed; the next one tries again")
            if self._stop.wait(0 if found >= BATCH else self._interval):
                return

    def sweep(self) -> int:
        """One round; answers how many executions it did something about."""
        now = self.jumps.look()
        orphans, due, late = self._orphans(now), self._due(now), admission.late_ones(now, BATCH)
        if orphans or due or late:
            db.write(lambda: self._put_right(orphans, due, late))
        if not self._queue.has(1) and turns.anything_ready():
            db.write(lambda: self._wakes.wake("", ""))  # one is enough: whoever begins something wakes the next
        return max(len(orphans), len(due), len(late))

    def _orphans(self, now: int) -> list[tuple[str, str, int]]:
        """Running executions whose worker is dead, silent for longer than its lease, or does not know of them."""
        rows = db.rows("SELECT tenant_id, id, fence, owner, lease_until FROM execution WHERE status IN ('running', 'cancelling')")
        alive: dict[str | None, bool] = {None: False}
        for _, _, _, owner, _ in rows:
            if owner not in alive:
                alive[owner] = self._presence.is_alive(owner)
        found = []
        seen = self._silent_since
        self._silent_since = {}
        for tenant_id, execution_id, fence, owner, lease_until in rows:
            if owner == self._presence.instance:
                # Taken a moment ago and not yet registered is not lost: the lease tells.
                if not self.is_running_here(execution_id) and lease_until < now:
                    found.append((tenant_id, execution_id, fence))
            elif not alive[owner]:
                found.append((tenant_id, execution_id, fence))
            elif lease_until < now:
                known = (execution_id, fence, lease_until)
                since = self._silent_since[known] = seen.get(known, clock.monotonic())
                if clock.monotonic() - since >= self._silent_seconds:
                    found.append((tenant_id, execution_id, fence))
        return found[:BATCH]

    @staticmethod
    def _due(now: int) -> list[tuple[str, str]]:
        rows = db.rows(
            "SELECT tenant_id, id FROM execution WHERE status IN ('waiting', 'scheduled') AND next_run_at <= ? "
            "ORDER BY next_run_at LIMIT ?",
            (now, BATCH),
        )
        return [(row[0], row[1]) for row in rows]

    def _put_right(self, orphans: list[tuple[str, str, int]], due: list[tuple[str, str]], late: list[tuple[str, str]]) -> None:
        now = self.jumps.now_ms()  # it may have been set since
        self._requeue(orphans)
        for tenant_id, execution_id in due:
            if admission.line_up(tenant_id, execution_id, now):
                self._wakes.wake(tenant_id, execution_id)
        for tenant_id, execution_id in late:
            admission.expire(tenant_id, execution_id, now)

    def _requeue(self, orphans: list[tuple[str, str, int]]) -> None:
        """Queue each again, unless it has been claimed since it was looked at; one being cancelled needs a worker of its own."""
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
