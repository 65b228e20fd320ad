"""The usage of a WebApp compared with its limits."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.scope import TenantScope

from .daily_totals import DAY, traffic_of_day


@dataclass(frozen=True)
class UsageLimits:
    """The limits of an app, None for no limit: bytes stored, requests per minute, bytes sent per day."""

    stored: int | None
    per_minute: int | None
    sent: int | None

    @classmethod
    def of(cls, stored_mb: int, requests_per_minute: int, egress_mb_per_day: int) -> "UsageLimits":
        """From settings, where 0 means no limit."""
        return cls(stored_mb << 20 or None, requests_per_minute or None, egress_mb_per_day << 20 or None)


@dataclass(frozen=True)
class Usage:
    """The bytes an app stores, and its requests and bytes sent today (UTC, a few seconds behind)."""

    stored: int
    requests_today: int
    sent_today: int
    allowance: UsageLimits


def read_usage(scope: TenantScope, app_id: str, stored: int, allowance: UsageLimits) -> Usage:
    """The usage of an app that stores `stored` bytes."""
    today = traffic_of_day(scope.tenant_id, app_id, clock.now_ms() // DAY * DAY)
    return Usage(stored, today.requests, today.bytes, allowance)
