"""Daily totals of requests and bytes of a WebApp."""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.core.database import db

DAY = 86_400_000
Stored = Mapping[tuple[str, str, int], int]  # bytes by tenant, app and beginning of the day

_COUNT = (
    "INSERT INTO webapp_traffic (tenant_id, app_id, day, requests, bytes) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant_id, app_id, day) "
    "DO UPDATE SET requests = webapp_traffic.requests + excluded.requests, bytes = webapp_traffic.bytes + excluded.bytes"
)


@dataclass(frozen=True)
class DayTraffic:
    """Requests and bytes of a day."""

    requests: int = 0
    bytes: int = 0


def add_sums(key: tuple[str, str, int], requests: int, size: int) -> None:
    """Inside a write: add to the totals of a tenant's app for the day that starts then."""
    db.execute(_COUNT, (*key, requests, size))


def traffic_of_day(tenant: str, app: str, day: int) -> DayTraffic:
    """The stored requests and bytes of an app for the day that starts at `day`."""
    sql = "SELECT requests, bytes FROM webapp_traffic WHERE tenant_id = ? AND app_id = ? AND day = ?"
    rows = db.rows(sql, (tenant, app, day))
    return DayTraffic(int(rows[0][0]), int(rows[0][1])) if rows else DayTraffic()
