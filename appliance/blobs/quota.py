"""How much each tenant may store: contents of documents, WebApps and skills, equal ones once, and what else is counted for it."""

from dataclasses import dataclass
from threading import Lock

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import StorageFull
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

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


@dataclass
class _Rows:
    """Bytes of rows as they were counted, and what this process has added since."""

    counted: int = 0
    since: int = 0


bounds = Bounds()
_sums: dict[str, _Sum] = {}
_rows: dict[str, _Rows] = {}
_lock = Lock()  # of `_rows`: the writer adds, a periodic count sets


def configure(*, tenant_bytes: int) -> None:
    """Set the bound of this process, and forget which contents were summed up before."""
    bounds.tenant_bytes = tenant_bytes
    _sums.clear()


def admit(scope: TenantScope, size: int) -> None:
    """Count a new content of so many bytes; StorageFull when the tenant has no room for it.

    The contents are summed up at most once in five seconds; what is added in between is counted in memory.
    """
    if not bounds.tenant_bytes:
        return
    known = _sum_of(scope)
    _refuse_beyond(known.bytes + row_bytes(scope.tenant_id), size, f"this content has {max(1, size >> 20)} MiB")
    known.bytes += size


def refuse_full(scope: TenantScope) -> None:
    """StorageFull when the tenant has no room for any more rows; their size is told to `add_rows` once it is known."""
    if bounds.tenant_bytes:
        _refuse_beyond(_sum_of(scope).bytes + row_bytes(scope.tenant_id), 1, "these values need more")


def used_bytes(scope: TenantScope) -> int:
    """Bytes of the contents of a tenant, and of its rows as far as they are counted."""
    return stored_bytes(scope) + row_bytes(scope.tenant_id)


def _sum_of(scope: TenantScope) -> _Sum:
    known, now = _sums.get(scope.tenant_id), clock.monotonic()
    if known is None or now - known.at >= FRESH_SECONDS:
        if len(_sums) >= _MOST_TENANTS:
            _sums.clear()
        known = _sums[scope.tenant_id] = _Sum(stored_bytes(scope), now)
    return known


def _refuse_beyond(used: int, size: int, what: str) -> None:
    most = bounds.tenant_bytes
    if used + size > most:
        raise StorageFull(Sentence(
            "this tenant stores %(used)s MiB of the %(most)s MiB it may (limits.tenant_storage_mb; documents, "
            "WebApps, skills, and entities with their history), and %(what)s; delete what is not needed (a "
            "content counts for another day, the history of an entity until it is past its retention or its "
            "collection is deleted), or ask whoever runs the appliance for more",
            used=used >> 20, most=most >> 20, what=what,
        ))


def stored_bytes(scope: TenantScope) -> int:
    """Bytes of all contents of a tenant."""
    found = db.rows("SELECT coalesce(sum(size), 0) FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
    return int(found[0][0])


# -- rows, which another room counts


def row_bytes(tenant_id: str) -> int:
    """Bytes of a tenant's rows: as they were counted last, and what has been added since."""
    known = _rows.get(tenant_id)
    return known.counted + known.since if known else 0


def add_rows(scope: TenantScope, size: int) -> None:
    """Count rows of so many bytes, which are written now."""
    with _lock:
        _rows.setdefault(scope.tenant_id, _Rows()).since += size


def rows_since(tenant_id: str) -> int:
    """What `add_rows` was told since the rows were counted last; to be handed to `set_rows`."""
    known = _rows.get(tenant_id)
    return known.since if known else 0


def set_rows(tenant_id: str, counted: int, since: int) -> None:
    """The rows have so many bytes, with `since` of those that were told to `add_rows` among them."""
    with _lock:
        known = _rows.setdefault(tenant_id, _Rows())
        known.counted = counted
        known.since -= since


def forget_rows(known_tenants: frozenset[str]) -> None:
    """Keep the counts of these tenants only."""
    with _lock:
        for gone in _rows.keys() - known_tenants:
            del _rows[gone]
