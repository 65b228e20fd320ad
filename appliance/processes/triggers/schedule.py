"""Schedules: decides which of the due times are run and which are skipped."""

from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope

from .cron import Cron
from .firings import Event, Firings, TriggerKey

# A due time found later than this was missed: the appliance was down, the process paused, or the clock set forward.
GRACE_MS = 60_000


@dataclass(frozen=True)
class Due:
    """A due trigger, as read from its row."""

    tenant_id: str
    mark: TriggerKey
    digest: str
    next_due: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """The decision: the due times to run, in order; the newest skipped one, which is recorded; the next due time."""

    run: list[int]
    skipped: int | None
    next_due: int | None


def make_plan(due: Due, now: int) -> Plan:
    """Decides which due times to run; pure.

    A due time found within a minute is always run.  Of the missed ones, `on_missed: skip` runs none, `run_once` the newest
    unless another time is run anyway, `run_all` the newest `max_missed`.
    """
    cron = Cron(due.settings["cron"], due.settings["timezone"])
    policy, most = due.settings["on_missed"], due.settings["max_missed"]
    times = cron.latest(due.next_due - 1, now, most + 2 if policy == "run_all" else 2)
    run = [moment for moment in times if now - moment <= GRACE_MS]
    missed = [moment for moment in times if now - moment > GRACE_MS]
    count = {"skip": 0, "run_once": 0 if run else 1, "run_all": most}[policy]
    chosen = missed[len(missed) - count :] if count < len(missed) else missed
    skipped = [moment for moment in missed if moment not in chosen]
    return Plan([*chosen, *run], skipped[-1] if skipped else None, cron.next_after(now))


def fire_schedule(firings: Firings, due: Due) -> None:
    """Records the events that are due and moves to the next due time, in one transaction; a second worker does nothing."""
    now = clock.now_ms()
    plan = make_plan(due, now)
    scope = TenantScope(due.tenant_id, "trigger")

    def write() -> None:
        changed = db.execute(
            "UPDATE trigger_state SET next_due = ? WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND digest = ? "
            "AND next_due = ?",
            (plan.next_due, due.tenant_id, due.mark.process_id, due.mark.trigger_id, due.digest, due.next_due),
        )
        if not changed:
            return
        if plan.skipped is not None:
            firings.record_skipped(scope, due.mark, _event(due, plan.skipped, now))
        for moment in plan.run:
            firings.record(scope, due.mark, _event(due, moment, now))

    db.write(write)


def _event(due: Due, moment: int, now: int) -> Event:
    data = {
        "due_at": clock.rfc3339(moment),
        "timezone": due.settings["timezone"],
        "missed": now - moment > GRACE_MS,
    }
    return Event(f"due:{moment}", data, due_at=moment)
