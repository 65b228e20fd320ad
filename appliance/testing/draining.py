"""Waits until an appliance is idle: no work is left that would continue by itself."""

import threading
from collections.abc import Callable, Collection

from appliance.core import clock
from appliance.core.database import db
from appliance.core.queue import TaskQueue

SECONDS = 60.0
PAUSE = 0.05
LOOKS = 2
"""How many checks in a row must find no work: between two rows that a task writes, there may briefly be none."""

HELD_BACK = ("paused", "slot")
"""Wait reasons of queued executions that do not start by themselves: the process is paused, or all its slots are in use."""

# Queries for work that continues by itself.  Waiting for a person, an event or a future time counts as idle.
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
_UNSENT_NOTICES = (
    "SELECT tenant_id, id, title || ' is to be sent' FROM approval WHERE status = 'pending' AND notified_at IS NULL AND ? > 0"
)


class StillRunning(AssertionError):
    """The appliance was not idle in time; the message lists the remaining work."""


def wait_until_idle(left: Callable[[], list[str]], seconds: float) -> None:
    """Return once `left` has returned nothing twice in a row; StillRunning if that takes longer than `seconds`."""
    ends, quiet, pause = clock.monotonic() + seconds, 0, threading.Event()
    while quiet < LOOKS:
        remaining = left()
        quiet = 0 if remaining else quiet + 1
        if remaining and clock.monotonic() > ends:
            listing = "\n".join(remaining[:20]) + (f"\nand {len(remaining) - 20} more" if len(remaining) > 20 else "")
            raise StillRunning(f"after {seconds:g} s there is still work left:\n{listing}")
        pause.wait(PAUSE)


def list_open_work(queue: TaskQueue, tenants: Collection[str], *, tells_at_once: bool) -> list[str]:
    """The work that would continue by itself in these tenants, one line each, for the appliance in this process.

    With `tells_at_once`, unsent e-mails to approvers count as well; otherwise they are delayed on purpose.
    """
    now, work = clock.now_ms(), []
    for kind, sql in (_OPEN | {"letter about": _UNSENT_NOTICES} if tells_at_once else _OPEN).items():
        work += [f"{kind} {row[1]} of {row[0]}: {row[2]}" for row in db.rows(sql, (now,)) if row[0] in tenants]
    depth = queue.depth()
    return work + ([f"{depth} messages in the queue"] if depth else [])
