"""Looks at what has come due: schedules, polls, and events whose message was lost.  Every worker does so; rows decide who."""

import json
import logging
from collections.abc import Callable
from functools import partial

from appliance.core import clock, db
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.processes.failing import make_error

from .firing import LOST_AFTER_MS, Event, Firings, Mark
from .schedule import Due, fire_schedule

log = logging.getLogger(__name__)
SECONDS = 0.5
AT_ONCE = 200


class Clockwork:
    """One thread that looks every half second; `poll` begins to ask an integration that is due."""

    def __init__(self, firings: Firings, wake: Callable[[str, str], None], poll: Callable[[Due], None]) -> None:
        self._firings, self._wake, self._poll = firings, wake, poll
        self._thread = Periodic("triggers", SECONDS, self.tick)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def tick(self) -> None:
        """One look."""
        for due in due_triggers(clock.now_ms()):
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

    def _give_up(self, due: Due, error: Exception) -> None:
        """Inside a write: one broken schedule must not hold up the others, and must not be looked at for ever."""
        scope = TenantScope(due.tenant_id, "trigger")
        db.execute(
            "UPDATE trigger_state SET next_due = NULL WHERE tenant_id = ? AND process_id = ? AND trigger_id = ?",
            (due.tenant_id, due.mark.process_id, due.mark.trigger_id),
        )
        message = f"the schedule cannot be worked out any more ({type(error).__name__}: {error}); mend it and publish again"
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


def due_triggers(now: int) -> list[Due]:
    """Schedules and polls of processes that are not paused, the longest due first."""
    found = db.rows(
        "SELECT s.tenant_id, s.process_id, s.trigger_id, s.kind, s.digest, s.next_due, s.settings FROM trigger_state s "
        "JOIN process p ON p.tenant_id = s.tenant_id AND p.id = s.process_id "
        "WHERE s.next_due <= ? AND p.paused_at IS NULL ORDER BY s.next_due LIMIT ?",
        (now, AT_ONCE),
    )
    return [Due(r[0], Mark(r[1], r[2], r[3]), r[4], r[5], json.loads(r[6])) for r in found]


def lost_firings(now: int) -> list[tuple[str, str, int]]:
    """Events whose message nobody has worked off, or that are to be tried again."""
    found = db.rows(
        "SELECT tenant_id, id, next_try_at FROM firing WHERE next_try_at <= ? ORDER BY next_try_at LIMIT ?", (now, AT_ONCE)
    )
    return [(row[0], row[1], row[2]) for row in found]
