"""What a WebApp uses up of what it may have."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.scope import TenantScope

from .sums import DAY, traffic_of_day


@dataclass(frozen=True)
class Allowance:
    """The most an app may have, None where there is no limit: bytes stored, requests in a minute, bytes sent on a day."""

    stored: int | None
    per_minute: int | None
    sent: int | None

    @classmethod
    def of(cls, stored_mb: int, requests_per_minute: int, egress_mb_per_day: int) -> "Allowance":
        """From settings, in which 0 is no limit."""
        return cls(stored_mb << 20 or None, requests_per_minute or None, egress_mb_per_day << 20 or None)


@dataclass(frozen=True)
class Usage:
    """What an app has stored, and what came to it and was sent today (UTC; noted within seconds)."""

    stored: int
    requests_today: int
    sent_today: int
    allowance: Allowance


def read_usage(scope: TenantScope, app_id: str, stored: int, allowance: Allowance) -> Usage:
    """Of an app that is there and holds `stored` bytes."""
    today = traffic_of_day(scope.tenant_id, app_id, clock.now_ms() // DAY * DAY)
    return Usage(stored, today.requests, today.bytes, allowance)
