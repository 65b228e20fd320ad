"""Database rows of orders. One process at a time owns an order, and only the owner's changes are stored."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.leases import LeaseTable

from .models import ChallengeRow, OrderRow
from .records import Problem
from .schedule import DAY, earliest_attempt_time, next_attempt_time

CLAIM_MS = 60_000
NEVER = 2**53
MOST_DUE = 1_000
LEASES = LeaseTable(OrderRow, ("host",), lease="due_at", owner="owner")


class Stopped(Exception):
    """This process is stopping: the order is left as it is for another process."""


def plan(host: str, tenant: str | None, names: tuple[str, ...], due_at: int) -> None:
    """Inside a write: schedule an order for the host at `due_at` (epoch ms). Attempts of the last day still count."""
    row = OrderRow.get_or_none(OrderRow.host == host)
    attempts = recent_attempts(row) if row is not None else []
    OrderRow.delete().where(OrderRow.host == host).execute()
    OrderRow.insert(
        host=host, tenant_id=tenant, names=list(names), answered={}, due_at=max(due_at, earliest_attempt_time(attempts)),
        tries=attempts, failures=0,
    ).execute()  # fmt: skip


def park(host: str) -> None:
    """Inside a write: stop ordering for the host. Attempts of the last day are kept, so that removing and adding a domain does
    not exceed the limit, and what was published is kept until it is withdrawn."""
    row = OrderRow.get_or_none(OrderRow.host == host)
    if row is None:
        return
    _forget_challenges(row)
    mine = OrderRow.host == host
    if recent_attempts(row) or row.answered:
        cleared = {**_CLEARED, "answered": row.answered}
        OrderRow.update(owner=None, due_at=NEVER, failures=0, problem=None, **cleared).where(mine).execute()
    else:
        OrderRow.delete().where(mine).execute()


def note_withdrawn(host: str) -> None:
    """Inside a write: record that everything published by a parked order is withdrawn."""
    if OrderRow.update(answered={}).where(OrderRow.host == host, OrderRow.due_at == NEVER).execute():
        park(host)


def has_orphaned_challenges() -> bool:
    """Whether challenges remain whose order was deleted together with its tenant."""
    return bool(db.rows("SELECT 1 FROM acme_challenge WHERE order_host NOT IN (SELECT host FROM certificate_order) LIMIT 1"))


def delete_orphaned_challenges() -> None:
    """Inside a write: delete challenges without an order."""
    db.execute("DELETE FROM acme_challenge WHERE order_host NOT IN (SELECT host FROM certificate_order)")


def is_running(row: OrderRow) -> bool:
    """Whether this order is still in progress."""
    return OrderRow.get_or_none(OrderRow.host == row.host, OrderRow.order_url == row.order_url) is not None


def claim(owner: str, is_alive: Callable[[str], bool]) -> OrderRow | None:
    """Claim an order that is due and not owned by a live process; None when there is none."""
    now = clock.now_ms()
    for host, seen in LEASES.list_due("host, owner", now, MOST_DUE):
        if seen is None or seen == owner or not is_alive(seen):
            claimed = db.write(partial(_try_claim, host, seen, owner))
            if claimed is not None:
                return claimed
    return None


def _try_claim(host: str, seen: str | None, owner: str) -> OrderRow | None:
    row: OrderRow | None = OrderRow.get_or_none(OrderRow.host == host)
    now = clock.now_ms()
    # If this process dies during the step, the order is not retried at once.
    if row is None or row.due_at > now or not LEASES.claim((host,), seen, owner=owner, until=now + CLAIM_MS):
        return None
    row.owner = owner
    return row


def update_order(row: OrderRow, **changes: Any) -> None:
    """Store the progress of an order; LeaseLost when this process no longer owns it."""
    db.write(lambda: LEASES.update((row.host,), row.owner, changes))
    for name, value in changes.items():
        setattr(row, name, value)


def release(row: OrderRow, due_at: int) -> None:
    """Release the order until `due_at`, when any process may claim it. LeaseLost."""
    db.write(lambda: LEASES.settle((row.host,), row.owner, {"due_at": due_at}))


def hand_over(row: OrderRow) -> None:
    """Release the order at once because this process is stopping."""
    db.write(lambda: LEASES.release((row.host,), row.owner, at=clock.now_ms()))


def complete(row: OrderRow, renew_at: int) -> None:
    """Inside a write: the certificate is issued; the next order is due at `renew_at`. LeaseLost."""
    _forget_challenges(row)
    LEASES.settle((row.host,), row.owner, {"due_at": renew_at, "failures": 0, "problem": None, **_CLEARED})


def fail(row: OrderRow, problem: Problem, retry_after: int = 0) -> None:
    """Record why the order failed, and schedule a new one. LeaseLost."""
    failures = row.failures + 1
    due_at = next_attempt_time(row.host, failures, row.tries, clock.now_ms(), retry_after)

    def write() -> None:
        _forget_challenges(row)
        changes = {"due_at": due_at, "failures": failures, "problem": asdict(problem), **_CLEARED}
        LEASES.settle((row.host,), row.owner, changes)

    db.write(write)


def recent_attempts(row: OrderRow) -> list[int]:
    """Times at which orders for the host were started during the last day."""
    since = clock.now_ms() - DAY
    return [at for at in row.tries if at > since]


_CLEARED: dict[str, Any] = {"order_url": None, "private_key": None, "answered": {}, "began_at": None}


def _forget_challenges(row: OrderRow) -> None:
    ChallengeRow.delete().where(ChallengeRow.order_host == row.host).execute()
