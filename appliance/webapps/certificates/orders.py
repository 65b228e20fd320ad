"""The rows of orders: one process works on an order at a time, and what it writes counts only while it does."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from appliance.core import clock
from appliance.core.database import db

from .models import ChallengeRow, OrderRow
from .records import Problem
from .schedule import DAY, earliest_try, next_try

CLAIM_MS = 60_000
NEVER = 2**53


class OrderLost(Exception):
    """The order went to another process, or the host is not wanted any more: what was just done for it is void."""


class Stopped(Exception):
    """This process is to end: what it was at is left as it stands, for whichever process comes next."""


def plan(host: str, tenant: str | None, names: tuple[str, ...], due_at: int) -> None:
    """Inside a write: have a certificate got for the host when it is due.  What was tried today still counts."""
    row = OrderRow.get_or_none(OrderRow.host == host)
    tries = recent_tries(row) if row is not None else []
    OrderRow.delete().where(OrderRow.host == host).execute()
    OrderRow.insert(
        host=host, tenant_id=tenant, names=list(names), answered={}, due_at=max(due_at, earliest_try(tries)), tries=tries,
        failures=0,
    ).execute()  # fmt: skip


def park(host: str) -> None:
    """Inside a write: nothing is to be got for the host any more.  What was tried today is kept, lest coming and going ask for
    more, and what was published until that has been withdrawn."""
    row = OrderRow.get_or_none(OrderRow.host == host)
    if row is None:
        return
    _forget_challenges(row)
    mine = OrderRow.host == host
    if recent_tries(row) or row.answered:
        stopped = {**_NOTHING, "answered": row.answered}
        OrderRow.update(owner=None, due_at=NEVER, failures=0, problem=None, **stopped).where(mine).execute()
    else:
        OrderRow.delete().where(mine).execute()


def note_withdrawn(host: str) -> None:
    """Inside a write: nothing that the parked order had published is left."""
    if OrderRow.update(answered={}).where(OrderRow.host == host, OrderRow.due_at == NEVER).execute():
        park(host)


def has_strays() -> bool:
    """Whether there are challenges whose order is gone, as it goes with its tenant."""
    return bool(db.rows("SELECT 1 FROM acme_challenge WHERE order_host NOT IN (SELECT host FROM certificate_order) LIMIT 1"))


def forget_strays() -> None:
    """Inside a write: drop these."""
    db.execute("DELETE FROM acme_challenge WHERE order_host NOT IN (SELECT host FROM certificate_order)")


def is_running(row: OrderRow) -> bool:
    """Whether somebody still works on this very order."""
    return OrderRow.get_or_none(OrderRow.host == row.host, OrderRow.order_url == row.order_url) is not None


def claim(owner: str, is_alive: Callable[[str], bool]) -> OrderRow | None:
    """An order that is due and that nobody alive works on; it is this process's then."""
    now = clock.now_ms()
    for row in OrderRow.select().where(OrderRow.due_at <= now).order_by(OrderRow.due_at):
        if row.owner is None or row.owner == owner or not is_alive(row.owner):
            taken: OrderRow | None = db.write(lambda row=row: _take(row, owner))  # type: ignore[misc]
            if taken is not None:
                return taken
    return None


def _take(seen: OrderRow, owner: str) -> OrderRow | None:
    row: OrderRow | None = OrderRow.get_or_none(OrderRow.host == seen.host)
    if row is None or row.owner != seen.owner or row.due_at > clock.now_ms():
        return None
    # Should this process die, or stumble, over the order, the next try is not at once.
    OrderRow.update(owner=owner, due_at=clock.now_ms() + CLAIM_MS).where(OrderRow.host == row.host).execute()
    row.owner = owner
    return row


def change(row: OrderRow, **changes: Any) -> None:
    """Inside a write or not: note how far the order has come; OrderLost when it is not this process's any more."""

    def write() -> None:
        mine = (OrderRow.host == row.host) & (OrderRow.owner == row.owner)
        if not OrderRow.update(**changes).where(mine).execute():
            raise OrderLost(row.host)

    db.write(write)
    for name, value in changes.items():
        if name != "owner":
            setattr(row, name, value)


def rest(row: OrderRow, due_at: int) -> None:
    """Leave the order as it is until then, to whichever process comes first."""
    change(row, owner=None, due_at=due_at)


def hand_over(row: OrderRow) -> None:
    """This process ends: let the next one go on at once."""
    mine = (OrderRow.host == row.host) & (OrderRow.owner == row.owner)
    db.write(lambda: OrderRow.update(owner=None, due_at=clock.now_ms()).where(mine).execute())


def end_well(row: OrderRow, renew_at: int) -> None:
    """Inside a write: the certificate is there; the next order is due when it is to be renewed."""
    _forget_challenges(row)
    change(row, owner=None, due_at=renew_at, failures=0, problem=None, **_NOTHING)


def end_badly(row: OrderRow, problem: Problem, retry_after: int = 0) -> None:
    """The order has failed: say why, and begin a new one later."""
    failures = row.failures + 1
    due_at = next_try(row.host, failures, row.tries, clock.now_ms(), retry_after)

    def write() -> None:
        _forget_challenges(row)
        change(row, owner=None, due_at=due_at, failures=failures, problem=asdict(problem), **_NOTHING)

    db.write(write)


def recent_tries(row: OrderRow) -> list[int]:
    """When orders for the host were begun, the last day's."""
    since = clock.now_ms() - DAY
    return [at for at in row.tries if at > since]


_NOTHING: dict[str, Any] = {"order_url": None, "private_key": None, "answered": {}, "began_at": None}


def _forget_challenges(row: OrderRow) -> None:
    ChallengeRow.delete().where(ChallengeRow.order_host == row.host).execute()
