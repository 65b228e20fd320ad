"""Looks at what has come due: schedules, polls, and events whose message was lost.  Every worker does so; rows decide who."""

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.engine.failing import make_error

from .cron import Cron
from .firing import LOST_AFTER_MS, Event, Firings, Mark
from .schedule import Due, fire_schedule

log = logging.getLogger(__name__)
SECONDS = 0.5
AT_ONCE = 200
# A clock that goes back by less is waited for: what it shows a second time is not done twice.
WAITED_MS = 86_400_000


class Clockwork:
    """One thread that looks every half second; `poll` begins to ask an integration that is due."""

    def __init__(self, firings: Firings, wake: Callable[[str, str], None], poll: Callable[[Due], None]) -> None:
        self._firings, self._wake, self._poll = firings, wake, poll
        self._thread = Periodic("triggers", SECONDS, self.tick)
        self._seen = 0  # the latest look, by the clock of the machine

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def tick(self) -> None:
        """One look."""
        now = clock.now_ms()
        if not self._seen or now + WAITED_MS < self._seen:
            self.put_right(now)
        self._seen = now
        for due in due_triggers(now):
            try:
                if due.mark.kind == "integration":
                    self._poll(due)
                else:
                    fire_schedule(self._firings, due)
            except Exception as error:
                log.exception("the schedule of a trigger failed", extra={"fields": {"trigger": due.mark.trigger_id}})
                db.write(partial(self._give_up, due, error))
        lost = lost_firings(clock.now_ms())
        if lost:
            db.write(lambda: self._call_again(lost))

    def put_right(self, now: int) -> None:
        """Have what a clock that was far ahead has put off be due as if it had not been."""
        for due in _put_off(now + WAITED_MS):
            try:
                allowed = _latest_due(due, now + WAITED_MS)
                following = _latest_due(due, now)
            except Exception:  # one broken schedule must not hold up the others; it is told when it is due
                log.exception("the schedule of a trigger cannot be worked out", extra={"fields": {"trigger": due.mark.trigger_id}})
                continue
            if allowed is not None and due.next_due > allowed:
                row = (due.tenant_id, due.mark.process_id, due.mark.trigger_id)
                same = "WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND next_due = ?"
                sql = f"UPDATE trigger_state SET next_due = ? {same}"  # noqa: S608
                db.write(partial(db.execute, sql, (following, *row, due.next_due)))
                log.warning("a trigger was put off by a clock that was ahead", extra={"fields": {"trigger": due.mark.trigger_id}})

    def _give_up(self, due: Due, error: Exception) -> None:
        """Inside a write: one broken schedule must not hold up the others, and must not be looked at for ever."""
        scope = TenantScope(due.tenant_id, "trigger")
        db.execute(
            "UPDATE trigger_state SET next_due = NULL WHERE tenant_id = ? AND process_id = ? AND trigger_id = ?",
            (due.tenant_id, due.mark.process_id, due.mark.trigger_id),
        )
        message = Sentence(
            "the schedule cannot be worked out any more (%(name)s: %(error)s); mend it and publish again",
            name=type(error).__name__, error=error,
        )
        told = make_error("schedule_failed", "system", message)
        self._firings.note_failure(scope, due.mark, Event(f"broken:{due.next_due}", {}, due_at=due.next_due), told)

    def _call_again(self, lost: list[tuple[str, str, int]]) -> None:
        later = clock.now_ms() + LOST_AFTER_MS
        for tenant_id, firing_id, next_try_at in lost:
            changed = db.execute(
                "UPDATE firing SET next_try_at = ? WHERE tenant_id = ? AND id = ? AND status = 'pending' AND next_try_at = ?",
                (later, tenant_id, firing_id, next_try_at),
            )
            if changed:
                self._wake(tenant_id, firing_id)


_COLUMNS = "s.tenant_id, s.process_id, s.trigger_id, s.kind, s.digest, s.next_due, s.settings"


def due_triggers(now: int) -> list[Due]:
    """Schedules and polls of processes that are not paused, the longest due first."""
    found = db.rows(
        f"SELECT {_COLUMNS} FROM trigger_state s JOIN process p ON p.tenant_id = s.tenant_id AND p.id = s.process_id "  # noqa: S608
        "WHERE s.next_due <= ? AND p.paused_at IS NULL ORDER BY s.next_due LIMIT ?",
        (now, AT_ONCE),
    )
    return [_due(row) for row in found]


def _put_off(after: int) -> list[Due]:
    return [_due(row) for row in db.rows(f"SELECT {_COLUMNS} FROM trigger_state s WHERE s.next_due > ?", (after,))]  # noqa: S608


def _due(row: tuple[Any, ...]) -> Due:
    return Due(row[0], Mark(row[1], row[2], row[3]), row[4], row[5], json.loads(row[6]))


def _latest_due(due: Due, moment: int) -> int | None:
    """When it is due at the latest, seen from a moment, unless a foreign system asked to be left alone for longer."""
    if due.mark.kind == "integration":
        return moment + int(due.settings["every_ms"])
    return Cron(due.settings["cron"], due.settings["timezone"]).next_after(moment)


def lost_firings(now: int) -> list[tuple[str, str, int]]:
    """Events whose message nobody has worked off, or that are to be tried again."""
    found = db.rows(
        "SELECT tenant_id, id, next_try_at FROM firing WHERE next_try_at <= ? ORDER BY next_try_at LIMIT ?", (now, AT_ONCE)
    )
    return [(row[0], row[1], row[2]) for row in found]
