"""The storage quota of tenants: contents of documents, WebApps and skills, equal ones counted once, and rows of entities."""

from dataclasses import dataclass
from functools import partial
from threading import Lock

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.errors import ApplianceError, StorageFull
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.quotas import find_limit, limits, make_refusal, notices

NAME = "storage"
FRESH_SECONDS = 5.0


@dataclass
class _Sum:
    """A sum of content sizes, including later additions, and when it was computed (monotonic seconds)."""

    bytes: int
    at: float


@dataclass
class _Rows:
    """The bytes of rows at the last count, and what this process has added since."""

    counted: int = 0
    since: int = 0


_sums: Cache[str, _Sum] = Cache(1_000)
_rows: dict[str, _Rows] = {}
_lock = Lock()  # guards `_rows`, which the writer adds to and a periodic count sets


def configure(*, tenant_bytes: int) -> None:
    """Sets the default of this process, 0 for no limit, and clears the cached sums."""
    limits.set_default("storage", tenant_bytes or None)
    _sums.clear()


def reserve(scope: TenantScope, size: int) -> None:
    """Counts a new content of `size` bytes; raises StorageFull when it exceeds the tenant's quota.

    Contents are summed up at most every five seconds; additions in between are counted in memory.
    """
    most = find_limit(scope.tenant_id, NAME)
    if most is None:
        return
    total = _sum_of(scope)
    used = total.bytes + row_bytes(scope.tenant_id)
    if used + size > most:
        raise _refusal(scope, used, most, f"this content has {max(1, size >> 20)} MiB")
    total.bytes += size
    notices.watch(scope.tenant_id, NAME, used + size, most)


def read_room(scope: TenantScope) -> tuple[int, int | None]:
    """The bytes used by a tenant, as `reserve` compares them, and how many it may use; None without a limit."""
    most = find_limit(scope.tenant_id, NAME)
    return (0 if most is None else _sum_of(scope).bytes + row_bytes(scope.tenant_id)), most


def refuse_full(scope: TenantScope) -> None:
    """Raises StorageFull when the tenant's quota is used up; the size of new rows is added by `add_rows` once it is known."""
    most = find_limit(scope.tenant_id, NAME)
    if most is None:
        return
    used = _sum_of(scope).bytes + row_bytes(scope.tenant_id)
    if used + 1 > most:
        raise _refusal(scope, used, most, "these values need more")
    notices.watch(scope.tenant_id, NAME, used, most)


def used_bytes(scope: TenantScope) -> int:
    """The bytes used by a tenant: its contents, and its rows as far as they have been counted."""
    return stored_bytes(scope) + row_bytes(scope.tenant_id)


def _sum_of(scope: TenantScope) -> _Sum:
    cached, now = _sums.get(scope.tenant_id), clock.monotonic()
    if cached is None or now - cached.at >= FRESH_SECONDS:
        cached = _sums[scope.tenant_id] = _Sum(stored_bytes(scope), now)
    return cached


def _refusal(scope: TenantScope, used: int, most: int, what: str) -> ApplianceError:
    if limits.is_special(scope.tenant_id, NAME):
        return make_refusal(scope.tenant_id, NAME, used, most)
    return StorageFull(
        Sentence(
            "this tenant uses %(used)s MiB of its %(most)s MiB (limits.tenant_storage_mb; documents, WebApps, "
            "skills, and entities with their history), and %(what)s; delete what you do not need (a deleted "
            "content counts for another day, the history of an entity until its retention ends or its "
            "collection is deleted), or ask your operator for more",
            used=used >> 20, most=most >> 20, what=what,
        ),
        extra={"quota": NAME, "used": used, "limit": most},
    )


def stored_bytes(scope: TenantScope) -> int:
    """The bytes of all contents of a tenant."""
    rows = db.rows("SELECT coalesce(sum(size), 0) FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
    return int(rows[0][0])


# -- rows, which are counted elsewhere


def row_bytes(tenant_id: str) -> int:
    """The bytes of a tenant's rows: the last count plus what has been added since."""
    count = _rows.get(tenant_id)
    return count.counted + count.since if count else 0


def add_rows(scope: TenantScope, size: int) -> None:
    """Inside a write: adds rows of `size` bytes once they are committed."""
    db.after_commit(partial(_add_written, scope.tenant_id, size))


def _add_written(tenant_id: str, size: int) -> None:
    with _lock:
        _rows.setdefault(tenant_id, _Rows()).since += size


def rows_since(tenant_id: str) -> int:
    """The bytes added by `add_rows` since the last count; pass them to `set_rows`."""
    count = _rows.get(tenant_id)
    return count.since if count else 0


def set_rows(tenant_id: str, counted: int, since: int) -> None:
    """Sets a new count of the rows' bytes, which includes `since` bytes added by `add_rows`."""
    with _lock:
        count = _rows.setdefault(tenant_id, _Rows())
        count.counted = counted
        count.since -= since


def drop_other_counts(known_tenants: frozenset[str]) -> None:
    """Drops the counts of all other tenants."""
    with _lock:
        for tenant_id in _rows.keys() - known_tenants:
            del _rows[tenant_id]
