"""Waiting until an appliance has come to rest: nothing that would go on by itself is left."""

import threading
from collections.abc import Callable, Collection

from appliance.core import clock
from appliance.core.database import db
from appliance.core.queue import TaskQueue

SECONDS = 60.0
PAUSE = 0.05
LOOKS = 2
"""So often in a row nothing may be left: between two rows that a task writes there can be a moment without either."""

HELD_BACK = ("paused", "slot")
"""Why a queued execution does not begin by itself: its process is paused, or another has its slot, whose end passes it on."""

# What goes on by itself.  Who waits for a person, an event or a time that has not come is at rest, and so is what is held back.
_OPEN = {
    "execution": (
        "SELECT tenant_id, id, process_id || ' is ' || status FROM execution WHERE status IN ('running', 'cancelling') "  # noqa: S608
        f"OR (status = 'queued' AND COALESCE(wait_reason, '') NOT IN {HELD_BACK}) "
        "OR (status IN ('waiting', 'scheduled') AND next_run_at <= ?)"
    ),
    "agent run": (
        "SELECT tenant_id, id, agent_id || ' is ' || status FROM agent_run WHERE status IN ('queued', 'running') "
        "OR (status = 'waiting' AND next_run_at <= ?)"
    ),
    "event of a trigger": "SELECT tenant_id, id, process_id || ' is to start' FROM firing WHERE status = 'pending' AND ? > 0",
    "trigger": (
        "SELECT t.tenant_id, t.trigger_id, t.process_id || ' is due' FROM trigger_state t JOIN process p "
        "ON p.tenant_id = t.tenant_id AND p.id = t.process_id WHERE t.next_due <= ? AND p.paused_at IS NULL"
    ),
    "call": (
        "SELECT tenant_id, id, integration_id || ' is ' || status FROM "
        "integration_call WHERE status IN ('queued', 'running') AND ? > 0"
    ),
    "webhook": (
        "SELECT tenant_id, id, event || ' is to be delivered' FROM webhook_delivery d WHERE status = 'pending' "
        "AND next_try_at <= ? AND NOT EXISTS (SELECT 1 FROM switched_off s WHERE s.tenant_id = d.tenant_id AND s.kind = 'tenant')"
    ),
    "text of a document": "SELECT tenant_id, id, 'is to be read' FROM document_text WHERE state = 'pending' AND next_try_at <= ?",
    "approval": "SELECT tenant_id, id, title || ' is over' FROM approval WHERE status = 'pending' AND expires_at <= ?",
}
_UNTOLD = "SELECT tenant_id, id, title || ' is to be sent' FROM approval WHERE status = 'pending' AND notified_at IS NULL AND ? > 0"


class StillRunning(AssertionError):
    """The appliance did not come to rest in time; the message names what still runs."""


def await_rest(left: Callable[[], list[str]], seconds: float) -> None:
    """Return once `left` has answered nothing twice in a row; StillRunning when that takes longer than `seconds`."""
    ends, quiet, pause = clock.monotonic() + seconds, 0, threading.Event()
    while quiet < LOOKS:
        found = left()
        quiet = 0 if found else quiet + 1
        if found and clock.monotonic() > ends:
            shown = "\n".join(found[:20]) + (f"\nand {len(found) - 20} more" if len(found) > 20 else "")
            raise StillRunning(f"after {seconds:g} s there is still something to do:\n{shown}")
        pause.wait(PAUSE)


def open_work(queue: TaskQueue, tenants: Collection[str], *, tells_at_once: bool) -> list[str]:
    """What would go on by itself in these tenants of the appliance of this process, a line each; with `tells_at_once` the
    letters to approvers, too, which are otherwise put off."""
    now, found = clock.now_ms(), []
    for kind, sql in (_OPEN | {"letter about": _UNTOLD} if tells_at_once else _OPEN).items():
        found += [f"{kind} {row[1]} of {row[0]}: {row[2]}" for row in db.rows(sql, (now,)) if row[0] in tenants]
    depth = queue.depth()
    return found + ([f"{depth} messages in the queue"] if depth else [])
