"""How many bytes the entities of each tenant and their history take, for the bound of what a tenant may store.

Counting them takes a while, so nobody who writes waits for it: a tenant is counted once after the start and then once a day,
in between the newest changes of all processes are added every minute, and each process adds its own at once.  Values count,
not pages, indexes or what the database keeps beside them.
"""

import json
from collections import defaultdict
from dataclasses import dataclass

from appliance.blobs import quota
from appliance.core import clock
from appliance.core.database import db
from appliance.datapool import tables
from appliance.datapool.definition import from_stored

DAY_SECONDS = 86_400.0
SHARE = 100  # a tenant that deletes collections again and again is counted anew for a hundredth of the time at most


@dataclass
class _Count:
    """Bytes of a tenant, when they are counted anew, and when they may be so at the earliest."""

    bytes: int
    due_at: float
    not_before: float


class StorageCount:
    """The counts of all tenants; one thread calls `look`."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._collections: dict[str, set[str]] = {}
        self._newest = 0

    def look(self) -> None:
        """Count whoever is due, and add to the others what has changed since the last look."""
        ((newest,),) = db.rows("SELECT coalesce(max(number), 0) FROM entity_change")
        changed = _changed_bytes(self._newest, newest) if self._counts else {}
        collections = defaultdict(set, {tenant: set() for (tenant,) in db.rows("SELECT id FROM tenant")})
        for tenant, table in db.rows("SELECT tenant_id, table_name FROM collection"):
            collections[tenant].add(table)
        before, self._collections, self._newest = self._collections, dict(collections), newest
        for tenant in collections:
            since, now = quota.rows_since(tenant), clock.monotonic()
            known = self._counts.get(tenant)
            if known is not None and before.get(tenant, set()) - collections[tenant]:
                known.due_at = min(known.due_at, known.not_before)
            if known is None or now >= known.due_at:
                known = self._counts[tenant] = _count(tenant, newest)
            else:
                known.bytes += changed.get(tenant, 0)
            quota.set_rows(tenant, known.bytes, since)
        for gone in self._counts.keys() - collections.keys():
            del self._counts[gone]
        quota.forget_rows(frozenset(collections))


def _changed_bytes(after: int, newest: int) -> dict[str, int]:
    """What the changes with these numbers have added to each tenant: a new entity is there twice, as itself and in the
    history, a deleted one in the history alone; how much longer or shorter a changed one became is left to the next count."""
    size = tables.text_bytes("entity")
    times = "CASE event WHEN 'created' THEN 2 WHEN 'deleted' THEN 0 ELSE 1 END"
    sql = f"SELECT tenant_id, sum({size} * {times}) FROM entity_change WHERE number > ? AND number <= ? GROUP BY tenant_id"  # noqa: S608
    return {str(tenant): int(added) for tenant, added in db.rows(sql, (after, newest))}


def _count(tenant: str, newest: int) -> _Count:
    began = clock.monotonic()
    size = tables.text_bytes("entity")
    sql = f"SELECT coalesce(sum({size}), 0) FROM entity_change WHERE tenant_id = ? AND number <= ?"  # noqa: S608
    ((total,),) = db.rows(sql, (tenant, newest))
    for (name,) in db.rows("SELECT name FROM collection WHERE tenant_id = ?", (tenant,)):
        with db.snapshot():
            for definition, table in db.rows(
                "SELECT definition, table_name FROM collection WHERE tenant_id = ? AND name = ?", (tenant, name)
            ):
                total += tables.count_bytes(from_stored(json.loads(definition)), table)
    ended = clock.monotonic()
    return _Count(int(total), ended + DAY_SECONDS, ended + (ended - began) * SHARE)
