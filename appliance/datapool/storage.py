"""Measures how many bytes the entities of each tenant and their history take, for the tenant's storage quota.

A full count is slow and never delays a write: each tenant is counted after the start and then once a day.  In between, the
latest changes of all processes are added every minute, and each process adds its own at once.  Only values count, not
pages, indexes and other overhead of the database.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.blobs import quota
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope, tenant_ids
from appliance.datapool import tables
from appliance.datapool.definition import from_stored

DAY_SECONDS = 86_400.0
RECOUNT_PAUSE_FACTOR = 100  # Recounts of a tenant that keeps deleting collections take at most a hundredth of the time.


@dataclass
class _Count:
    """The bytes of a tenant, when the next full count is due, and the earliest time for one after a deletion."""

    bytes: int
    next_count_at: float
    not_before: float


class StorageUsage:
    """The counts of all tenants; `look` is called by one thread only."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._collections: dict[str, set[str]] = {}
        self._newest = 0

    def update(self) -> None:
        """Count the tenants that are due, and add the changes since the last call to the others."""
        ((newest,),) = db.rows("SELECT coalesce(max(number), 0) FROM entity_change")
        changed = _changed_bytes(self._newest, newest) if self._counts else {}
        collections: defaultdict[str, set[str]] = defaultdict(set, {tenant: set() for tenant in tenant_ids()})
        for tenant, table in db.rows("SELECT tenant_id, table_name FROM collection"):
            collections[tenant].add(table)
        before, self._collections, self._newest = self._collections, dict(collections), newest
        for tenant in collections:
            since, now = quota.rows_since(tenant), clock.monotonic()
            count = self._counts.get(tenant)
            if count is not None and before.get(tenant, set()) - collections[tenant]:
                count.next_count_at = min(count.next_count_at, count.not_before)
            if count is None or now >= count.next_count_at:
                count = self._counts[tenant] = _count_tenant(tenant, newest)
            else:
                count.bytes += changed.get(tenant, 0)
            quota.set_rows(tenant, count.bytes, since)
        for deleted_tenant in self._counts.keys() - collections.keys():
            del self._counts[deleted_tenant]
        quota.drop_other_counts(frozenset(collections))


def measure_tenant(scope: TenantScope) -> None:
    """Count the bytes of one tenant's entities, for processes in which no `StorageUsage` runs.  Scans its tables."""
    ((newest,),) = db.rows("SELECT coalesce(max(number), 0) FROM entity_change")
    quota.set_rows(scope.tenant_id, _count_tenant(scope.tenant_id, newest).bytes, quota.rows_since(scope.tenant_id))


@dataclass(frozen=True)
class FileUsage:
    """How many entities the file of an export has, and the bytes of them and their history."""

    entities: int
    bytes: int


def measure_file(execute: Callable[[str], Iterable[Sequence[Any]]]) -> FileUsage:
    """Count the rows of an export's SQLite file, whose names were checked, as those of a tenant are counted."""
    history = tables.text_bytes_sql("entity", is_sqlite=True)
    ((size,),) = execute(f"SELECT coalesce(sum({history}), 0) FROM entity_change")  # noqa: S608
    entities = 0
    for stored, table in list(execute("SELECT definition, table_name FROM collection")):
        ((count,),) = execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608  a checked name
        ((more,),) = execute(tables.count_bytes_sql(from_stored(json.loads(stored)), table, is_sqlite=True))
        entities, size = entities + int(count), size + int(more)
    return FileUsage(entities, int(size))


def _changed_bytes(after: int, newest: int) -> dict[str, int]:
    """The bytes that the changes with these numbers added to each tenant.

    A new entity is stored twice, in its table and in the history; a deleted one remains in the history only.  By how much an
    update grew or shrank its entity is left to the next full count.
    """
    size = tables.text_bytes_sql("entity", is_sqlite=db.is_sqlite())
    times = "CASE event WHEN 'created' THEN 2 WHEN 'deleted' THEN 0 ELSE 1 END"
    sql = f"SELECT tenant_id, sum({size} * {times}) FROM entity_change WHERE number > ? AND number <= ? GROUP BY tenant_id"  # noqa: S608
    return {str(tenant): int(added) for tenant, added in db.rows(sql, (after, newest))}


def _count_tenant(tenant: str, newest: int) -> _Count:
    started_at = clock.monotonic()
    size = tables.text_bytes_sql("entity", is_sqlite=db.is_sqlite())
    sql = f"SELECT coalesce(sum({size}), 0) FROM entity_change WHERE tenant_id = ? AND number <= ?"  # noqa: S608
    ((total,),) = db.rows(sql, (tenant, newest))
    for (name,) in db.rows("SELECT name FROM collection WHERE tenant_id = ?", (tenant,)):
        with db.snapshot():
            for definition, table in db.rows(
                "SELECT definition, table_name FROM collection WHERE tenant_id = ? AND name = ?", (tenant, name)
            ):
                total += tables.count_bytes(from_stored(json.loads(definition)), table)
    finished_at = clock.monotonic()
    return _Count(int(total), finished_at + DAY_SECONDS, finished_at + (finished_at - started_at) * RECOUNT_PAUSE_FACTOR)
