"""Schedules: which of the times that have come are run, and which are passed over."""

from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope

from .cron import Cron
from .firing import Event, Firings, Mark

# What is found later than this was missed: the appliance was down, the process paused, or the clock was put forward.
GRACE_MS = 60_000


@dataclass(frozen=True)
class Due:
    """A trigger whose time has come, as its row was read."""

    tenant_id: str
    mark: Mark
    digest: str
    next_due: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What happens now: the times to run, in order; the one told as passed over; and when the trigger is due next."""

    run: list[int]
    skipped: int | None
    following: int | None


def make_plan(due: Due, now: int) -> Plan:
    """Decide, without any effect.

    A time found within a minute is run whatever `on_missed` says.  Of those that were missed `skip` runs none, `run_once` the
    newest unless a time is run anyway, `run_all` the newest `max_missed`.
    """
    cron = Cron(due.settings["cron"], due.settings["timezone"])
    policy, most = due.settings["on_missed"], due.settings["max_missed"]
    found = cron.latest(due.next_due - 1, now, most + 2 if policy == "run_all" else 2)
    run = [moment for moment in found if now - moment <= GRACE_MS]
    missed = [moment for moment in found if now - moment > GRACE_MS]
    kept = {"skip": 0, "run_once": 0 if run else 1, "run_all": most}[policy]
    chosen = missed[len(missed) - kept :] if kept < len(missed) else missed
    left = [moment for moment in missed if moment not in chosen]
    return Plan([*chosen, *run], left[-1] if left else None, cron.next_after(now))


def fire_schedule(firings: Firings, due: Due) -> None:
    """Note what is due, and move on to the next time, in one transaction; whoever comes second does nothing."""
    now = clock.now_ms()
    plan = make_plan(due, now)
    scope = TenantScope(due.tenant_id, "trigger")

    def write() -> None:
        changed = db.execute(
            "UPDATE trigger_state SET next_due = ? WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND digest = ? "
            "AND next_due = ?",
            (plan.following, due.tenant_id, due.mark.process_id, due.mark.trigger_id, due.digest, due.next_due),
        )
        if not changed:
            return
        if plan.skipped is not None:
            firings.note_skipped(scope, due.mark, _event(due, plan.skipped, now))
        for moment in plan.run:
            firings.note(scope, due.mark, _event(due, moment, now))

    db.write(write)


def _event(due: Due, moment: int, now: int) -> Event:
    data = {
        "due_at": clock.rfc3339(moment),
        "timezone": due.settings["timezone"],
        "missed": now - moment > GRACE_MS,
    }
    return Event(f"due:{moment}", data, due_at=moment)
