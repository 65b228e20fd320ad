"""Counts what a tenant may do so many times a day, in the write that does it: a write that fails counts nothing.

Nothing is counted without a limit: it would cost every execution a statement.

The counts are rows, so they are exact, outlive a restart and are shared by all processes.  A process compares with what it read
at most a second ago, and what it has written since.  Near the limit it reads them again inside an exclusive write, beside which
no other process writes: the limit is exceeded only if the others do more than `zone` within that second.
"""

import secrets
import threading
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.scope import TenantScope

from . import notices
from .kinds import DAY
from .limits import find_limit
from .refusals import make_refusal

FRESH_SECONDS = 1.0
LEAST_ZONE = 200
STRIPES = 16
KEPT_MS = 2 * DAY
_ADD = (
    "INSERT INTO quota_use (tenant_id, name, day, stripe, used) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant_id, name, day, stripe) DO UPDATE SET used = quota_use.used + excluded.used"
)


@dataclass
class _Use:
    """What was used on a day: as read at a time (monotonic seconds), and what this process has written since."""

    day: int
    read: int
    at: float
    since: int = 0


class _Stripe(threading.local):
    """The stripe of this thread's counts: on a server, writers must not wait for each other."""

    def __init__(self) -> None:
        self.number = secrets.randbelow(STRIPES)


_stripe = _Stripe()
_uses: Cache[tuple[str, str], _Use] = Cache(2_000)


def zone(limit: int) -> int:
    """How far below a limit counts are read again each time."""
    return max(LEAST_ZONE, limit // 20)


def may_begin(scope: TenantScope, name: str) -> bool:
    """Whether one more is certainly within the quota, so that it can be counted after it has begun."""
    limit = find_limit(scope.tenant_id, name)
    if limit is None:
        return True
    use = _load(scope.tenant_id, name)
    return use.read + use.since + zone(limit) < limit


def check(scope: TenantScope, name: str) -> None:
    """Before a write: the error of the quota if it is used up."""
    limit = find_limit(scope.tenant_id, name)
    if limit is not None and (used := read_used(scope.tenant_id, name)) >= limit:
        raise make_refusal(scope.tenant_id, name, used, limit)


def add(scope: TenantScope, name: str) -> None:
    """Inside a write: count one without a check, because it was admitted before; without a limit nothing is counted."""
    if find_limit(scope.tenant_id, name) is not None:
        _count(scope, name)


def _count(scope: TenantScope, name: str) -> None:
    day = clock.now_ms() // DAY * DAY
    db.send(_ADD, (scope.tenant_id, name, day, _stripe.number if db.is_shared() else 0, 1))
    db.after_commit(partial(_add_written, (scope.tenant_id, name), day))


def admit(scope: TenantScope, name: str) -> None:
    """Inside a write: count one; the error of the quota if it is used up.  Without a limit nothing is counted."""
    limit = find_limit(scope.tenant_id, name)
    if limit is not None:
        _check_inside(scope.tenant_id, name, limit)
        _count(scope, name)


def _check_inside(tenant_id: str, name: str, limit: int) -> None:
    use = _uses.get((tenant_id, name))
    now, day = clock.monotonic(), clock.now_ms() // DAY * DAY
    is_fresh = use is not None and use.day == day and now - use.at < FRESH_SECONDS
    used = use.read + use.since if use is not None and is_fresh else read_used(tenant_id, name)
    if used + zone(limit) >= limit:
        db.require_exclusive()
        used, is_fresh = read_used(tenant_id, name), False
    if not is_fresh:
        db.after_commit(partial(_uses.__setitem__, (tenant_id, name), _Use(day, used, now)))
    if used >= limit:
        raise make_refusal(tenant_id, name, used, limit)
    notices.watch(tenant_id, name, used + 1, limit)


def _load(tenant_id: str, name: str) -> _Use:
    day, now = clock.now_ms() // DAY * DAY, clock.monotonic()
    use = _uses.get((tenant_id, name))
    if use is None or use.day != day or now - use.at >= FRESH_SECONDS:
        use = _uses[(tenant_id, name)] = _Use(day, read_used(tenant_id, name), now)
    return use


def _add_written(key: tuple[str, str], day: int) -> None:
    use = _uses.get(key)
    if use is not None and use.day == day:
        use.since += 1


def read_used(tenant_id: str, name: str) -> int:
    """What the tenant has used today."""
    ((used,),) = db.rows(
        "SELECT coalesce(sum(used), 0) FROM quota_use WHERE tenant_id = ? AND name = ? AND day = ?",
        (tenant_id, name, clock.now_ms() // DAY * DAY),
    )
    return int(used)


def purge(now: int) -> int:
    """Delete the counts of days before yesterday; returns how many."""
    return db.write(partial(db.execute, "DELETE FROM quota_use WHERE day < ?", (now // DAY * DAY - KEPT_MS,)))
