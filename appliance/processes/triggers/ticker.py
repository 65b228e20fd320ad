"""Fires due schedules and polls and recovers events whose message was lost.  Runs in every worker; rows prevent duplicates."""

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.changes import earliest
from appliance.core.leases.open_tenants import FENCED
from appliance.core.scheduling import PROMPT, PeriodicJob, Rest, Scheduler
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.engine.failures import make_error

from .cron import Cron
from .firings import LOST_AFTER_MS, Event, Firings, TriggerKey
from .schedule import Due, fire_schedule

log = logging.getLogger(__name__)
SECONDS = 0.5
BATCH = 200
# When the clock is set back by less than this, due times wait for it, so that no schedule runs twice.
MAX_BACKWARD_MS = 86_400_000


class TriggerTicker:
    """Checks every half second; `poll` starts the poll of a due integration."""

    def __init__(self, firings: Firings, wake: Callable[[str, str], None], poll: Callable[[Due], None]) -> None:
        self._firings, self._wake, self._poll = firings, wake, poll
        self._job = PeriodicJob("triggers", SECONDS, self.tick, PROMPT, rest=Rest(next_due=next_due))
        self._last_tick = 0  # the wall-clock time of the last tick

    def start(self, scheduler: Scheduler) -> None:
        self._job.start(scheduler)

    def stop(self) -> None:
        self._job.stop()

    def tick(self) -> None:
        """Fires everything that is due now."""
        now = clock.now_ms()
        if not self._last_tick or now + MAX_BACKWARD_MS < self._last_tick:
            self.restore_due_times(now)
        self._last_tick = now
        for due in list_due_triggers(now):
            try:
                if due.mark.kind == "integration":
                    self._poll(due)
                else:
                    fire_schedule(self._firings, due)
            except Exception as error:
                log.exception("A trigger's schedule failed.", extra={"fields": {"trigger": due.mark.trigger_id}})
                db.write(partial(self._disable, due, error))
        lost = list_lost_firings(clock.now_ms())
        if lost:
            db.write(lambda: self._wake_again(lost))

    def restore_due_times(self, now: int) -> None:
        """Moves due times forward that are too late because the clock had been far ahead when they were computed."""
        for due in _find_due_after(now + MAX_BACKWARD_MS):
            try:
                allowed = _latest_due(due, now + MAX_BACKWARD_MS)
                following = _latest_due(due, now)
            except Exception:  # one broken schedule must not hold up the others; it is reported when it is due
                log.exception("The due time of a trigger cannot be computed.", extra={"fields": {"trigger": due.mark.trigger_id}})
                continue
            if allowed is not None and due.next_due > allowed:
                row = (due.tenant_id, due.mark.process_id, due.mark.trigger_id)
                same = "WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND next_due = ?"
                sql = f"UPDATE trigger_state SET next_due = ? {same}"  # noqa: S608
                db.write(partial(db.execute, sql, (following, *row, due.next_due)))
                log.warning("A trigger was delayed by a clock that was ahead.", extra={"fields": {"trigger": due.mark.trigger_id}})

    def _disable(self, due: Due, error: Exception) -> None:
        """Disables a broken schedule and records the failure, so that it is not tried forever; inside a write."""
        scope = TenantScope(due.tenant_id, "trigger")
        db.execute(
            "UPDATE trigger_state SET next_due = NULL WHERE tenant_id = ? AND process_id = ? AND trigger_id = ?",
            (due.tenant_id, due.mark.process_id, due.mark.trigger_id),
        )
        message = Sentence(
            "the next due time cannot be computed (%(name)s: %(error)s); correct the schedule and publish again",
            name=type(error).__name__, error=error,
        )
        failure = make_error("schedule_failed", "system", message)
        self._firings.record_failure(scope, due.mark, Event(f"broken:{due.next_due}", {}, due_at=due.next_due), failure)

    def _wake_again(self, lost: list[tuple[str, str, int]]) -> None:
        later = clock.now_ms() + LOST_AFTER_MS
        for tenant_id, firing_id, next_try_at in lost:
            changed = db.execute(
                "UPDATE firing SET next_try_at = ? WHERE tenant_id = ? AND id = ? AND status = 'pending' AND next_try_at = ?",
                (later, tenant_id, firing_id, next_try_at),
            )
            if changed:
                self._wake(tenant_id, firing_id)


_COLUMNS = "s.tenant_id, s.process_id, s.trigger_id, s.kind, s.digest, s.next_due, s.settings"


def list_due_triggers(now: int) -> list[Due]:
    """Due schedules and polls of processes that are not paused, earliest first."""
    rows = db.rows(
        f"SELECT {_COLUMNS} FROM trigger_state s JOIN process p ON p.tenant_id = s.tenant_id AND p.id = s.process_id "  # noqa: S608
        "WHERE s.next_due <= ? AND p.paused_at IS NULL ORDER BY s.next_due LIMIT ?",
        (now, BATCH),
    )
    return [_due(row) for row in rows]


def _find_due_after(after: int) -> list[Due]:
    return [_due(row) for row in db.rows(f"SELECT {_COLUMNS} FROM trigger_state s WHERE s.next_due > ?", (after,))]  # noqa: S608


def _due(row: tuple[Any, ...]) -> Due:
    return Due(row[0], TriggerKey(row[1], row[2], row[3]), row[4], row[5], json.loads(row[6]))


def _latest_due(due: Due, moment: int) -> int | None:
    """The latest regular due time after a moment; a foreign system may have asked for a longer pause."""
    if due.mark.kind == "integration":
        return moment + int(due.settings["every_ms"])
    return Cron(due.settings["cron"], due.settings["timezone"]).next_after(moment)


def list_lost_firings(now: int) -> list[tuple[str, str, int]]:
    """Events whose message was lost or whose next attempt is due."""
    rows = db.rows(
        f"SELECT tenant_id, id, next_try_at FROM firing WHERE next_try_at <= ? AND tenant_id NOT IN ({FENCED}) "  # noqa: S608
        "ORDER BY next_try_at LIMIT ?",
        (now, BATCH),
    )
    return [(row[0], row[1], row[2]) for row in rows]


def next_due() -> int | None:
    """When the first schedule, poll or event is due (epoch ms), None without one."""
    return earliest(
        "SELECT MIN(s.next_due) FROM trigger_state s JOIN process p ON p.tenant_id = s.tenant_id AND p.id = s.process_id "
        "WHERE s.next_due IS NOT NULL AND p.paused_at IS NULL",
        "SELECT MIN(next_try_at) FROM firing WHERE next_try_at IS NOT NULL",
    )
