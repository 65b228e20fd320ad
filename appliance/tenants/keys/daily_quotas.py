"""Daily quotas of API keys: how many requests a key may make on a day in UTC, counted for it and every key it descends from; and
that of a tenant, for all its keys.

Each process counts in memory and adds its counts to rows that all processes share, every two seconds.  Until then other processes
do not know of them: together they exceed a quota by at most the requests of these seconds.  A killed process forgets them.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from peewee import BigIntegerField, CompositeKey, TextField

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import RateLimited, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.quotas import make_refusal, notices

DAY = 86_400_000
MAX_QUOTA = 1_000_000_000
ALL_KEYS = ""
"""Stands for all keys of a tenant in counts of requests; no key has this id."""
TENANT_QUOTA = "requests_per_day"
_STALE_MS = 2_000
Name = tuple[str, str]  # tenant and `counted_as`
_ADD = (
    "INSERT INTO key_usage (tenant_id, key_id, day, count) SELECT ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM tenant WHERE id = ?) "
    "ON CONFLICT (tenant_id, key_id, day) DO UPDATE SET count = key_usage.count + excluded.count"
)


class KeyUsageRow(TenantModel):
    """The requests of a day (its start in epoch ms) that count on a key with a quota, and on those that it was rotated to."""

    label = "use of a key"
    key_id = TextField()
    day = BigIntegerField()
    count = BigIntegerField()

    class Meta:
        table_name = "key_usage"
        primary_key = CompositeKey("tenant_id", "key_id", "day")


@dataclass(frozen=True)
class DailyQuota:
    """A quota that a request counts against; `counted_as` is the first key of those that were rotated to this one."""

    key_id: str
    counted_as: str
    requests: int


@dataclass(slots=True)
class _Use:
    """The use of a quota on a day: what the rows had at `read_at`, and what this process has not yet added to them."""

    day: int
    stored: int
    read_at: int
    pending: int = 0


def check_quota(requests: int | None) -> None:
    """ValidationFailed unless this can be a quota; None is none."""
    if requests is not None and not 1 <= requests <= MAX_QUOTA:
        raise ValidationFailed(
            Sentence("daily_requests must be between 1 and %(most)s", most=MAX_QUOTA), pointer="/daily_requests"
        )


class DailyQuotas:
    """Counts requests against quotas."""

    def __init__(self) -> None:
        self._uses: dict[Name, _Use] = {}
        self._lock = threading.Lock()

    def count(self, tenant_id: str, key_id: str, quotas: tuple[DailyQuota, ...]) -> None:
        """Count one request on each quota, that of the tenant last; RateLimited, without counting, if one is used up.

        May read the database.
        """
        now = clock.now_ms()
        with self._lock:
            uses = [self._load((tenant_id, quota.counted_as), now) for quota in quotas]
            for quota, use in zip(quotas, uses, strict=True):
                if use.stored + use.pending >= quota.requests:
                    if quota.key_id == ALL_KEYS:
                        raise make_refusal(tenant_id, TENANT_QUOTA, use.stored + use.pending, quota.requests)
                    raise _refusal(quota, now, is_own=quota.key_id == key_id)
            for use in uses:
                use.pending += 1
        if quotas[-1].key_id == ALL_KEYS:
            notices.watch(tenant_id, TENANT_QUOTA, uses[-1].stored + uses[-1].pending, quotas[-1].requests)

    def _load(self, name: Name, now: int) -> _Use:
        """Read what is stored about a quota, unless it was read just now; call with the lock."""
        day, use = now // DAY * DAY, self._uses.get(name)
        if use is None or use.day != day:
            use = self._uses[name] = _Use(day, _read_count(name, day), now)
        elif db.is_shared() and now - use.read_at >= _STALE_MS:
            use.stored, use.read_at = _read_count(name, day), now
        return use

    def has_counts(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._uses)

    def flush(self) -> None:
        """Add the counts to the rows, and forget quotas without a request since the last time.

        If that fails, the counts are kept for the next time.
        """
        with self._lock:
            counts = {(name, use.day): use.pending for name, use in self._uses.items() if use.pending}
        if counts:
            db.write(partial(_add_counts, counts), is_shared=True)
        with self._lock:
            for name, use in list(self._uses.items()):
                added = counts.get((name, use.day), 0)
                use.stored, use.pending, use.read_at = use.stored + added, use.pending - added, 0
                if not added and not use.pending:
                    del self._uses[name]


def _add_counts(counts: Mapping[tuple[Name, int], int]) -> None:
    for ((tenant_id, key_id), day), count in sorted(counts.items()):
        db.execute(_ADD, (tenant_id, key_id, day, count, tenant_id))


def _read_count(name: Name, day: int) -> int:
    rows = db.rows("SELECT count FROM key_usage WHERE tenant_id = ? AND key_id = ? AND day = ?", (*name, day))
    return int(rows[0][0]) if rows else 0


def read_usage(scope: TenantScope) -> dict[str, int]:
    """Today's requests of the tenant's keys with a quota by `counted_as`, at most two seconds old."""
    day = clock.now_ms() // DAY * DAY
    rows = db.rows("SELECT key_id, count FROM key_usage WHERE tenant_id = ? AND day = ?", (scope.tenant_id, day))
    return {str(key_id): int(count) for key_id, count in rows}


def read_tenant_usage(scope: TenantScope) -> int:
    """Today's requests of all keys, which are counted while the tenant has a quota; at most two seconds old."""
    return read_usage(scope).get(ALL_KEYS, 0)


def purge(now: int) -> int:
    """Delete the counts of days before yesterday; returns how many."""
    return db.write(partial(db.execute, "DELETE FROM key_usage WHERE day < ?", (now // DAY * DAY - DAY,)))


def _refusal(quota: DailyQuota, now: int, *, is_own: bool) -> RateLimited:
    left = (DAY - now % DAY + 999) // 1000
    sentence = (
        Sentence(
            "this key can make %(quota)s requests a day (UTC); try again in %(reset_s)s s", quota=quota.requests, reset_s=left
        )
        if is_own
        else Sentence(
            "the key that issued this one can make %(quota)s requests a day (UTC), and this request counts as well; try again in "
            "%(reset_s)s s",
            quota=quota.requests, reset_s=left,
        )
    )
    return RateLimited(sentence, headers={"Retry-After": str(left)}, extra={"limit": "daily_requests"})
