"""How much each tenant may store: contents of documents, WebApps and skills, equal ones once."""

from dataclasses import dataclass

from appliance.core import clock, db
from appliance.core.errors import StorageFull
from appliance.core.scope import TenantScope

FRESH_SECONDS = 5.0
_MOST_TENANTS = 1_000  # sums that are remembered


@dataclass
class Bounds:
    """Bytes of one tenant; 0 is no limit."""

    tenant_bytes: int = 0


@dataclass
class _Sum:
    """What was summed up, when, and what has come since."""

    bytes: int
    at: float


bounds = Bounds()
_sums: dict[str, _Sum] = {}


def configure(*, tenant_bytes: int) -> None:
    """Set the bound of this process, and forget what was summed up before."""
    bounds.tenant_bytes = tenant_bytes
    _sums.clear()


def admit(scope: TenantScope, size: int) -> None:
    """Count a new content of so many bytes; StorageFull when the tenant has no room for it.

    The rows are summed up at most once in five seconds; what is added in between is counted in memory.
    """
    most = bounds.tenant_bytes
    if not most:
        return
    known, now = _sums.get(scope.tenant_id), clock.monotonic()
    if known is None or now - known.at >= FRESH_SECONDS:
        if len(_sums) >= _MOST_TENANTS:
            _sums.clear()
        known = _sums[scope.tenant_id] = _Sum(stored_bytes(scope), now)
    if known.bytes + size > most:
        raise StorageFull(
            f"this tenant stores {known.bytes >> 20} MiB of the {most >> 20} MiB it may (limits.tenant_storage_mb), and this "
            f"content has {max(1, size >> 20)} MiB; delete what is not needed (it counts for another day), or ask whoever runs the "
            "appliance for more"
        )
    known.bytes += size


def stored_bytes(scope: TenantScope) -> int:
    """Bytes of all contents of a tenant."""
    found = db.rows("SELECT coalesce(sum(size), 0) FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
    return int(found[0][0])
