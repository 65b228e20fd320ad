"""Deleted collections: gone for everybody at once, their entities and history removed in many short writes.

A deleted collection keeps its row, under a name that nobody can use, until its table is empty.  So any process removes the rest of
what another one has left, and copies of the database have what is left, and remove it, too.  Its relations keep no entity of
another collection from being deleted.  The collections of a tenant are removed in the order in which they were deleted, because
a table can refer only to tables that were deleted later.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.bulk import short_writes
from appliance.core.database.bulk.short_writes import Permission, Rows
from appliance.core.errors import Conflict
from appliance.core.leases import LeaseTable
from appliance.core.leases.open_tenants import FENCED
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import tables
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.definition import CollectionDefinition
from appliance.datapool.models import Collection

LEASES = LeaseTable(
    Collection, ("tenant_id", "name"), lease="removal_lease", running="removal_lease IS NOT NULL", stops_with_tenant=True
)
LEASE_MS, TURN_SECONDS = 60_000, 1.0
"""How long another process waits for one that is gone, and how long one collection is removed before others have their turn."""
SMALL = 20
"""A collection with so few entities and changes is deleted by one write."""
MOST_UNLINKED, MOST_DUE = 2_000, 100
Key = tuple[str, str]
_DUE = (
    "SELECT tenant_id, name, table_name, removal_lease FROM collection AS due WHERE removal_lease <= ? "  # noqa: S608  our own words
    f"AND tenant_id NOT IN ({FENCED}) AND NOT EXISTS (SELECT 1 FROM collection AS older WHERE older.tenant_id = due.tenant_id "
    "AND older.removal_lease IS NOT NULL AND older.updated_at < due.updated_at) ORDER BY removal_lease, tenant_id LIMIT ?"
)
_HIDDEN = "SELECT table_name, updated_at FROM collection WHERE tenant_id = ? AND removal_lease IS NOT NULL ORDER BY updated_at"


def delete_collection(scope: TenantScope, collection: CompiledCollection) -> None:
    """Inside a write: the collection is gone; if it is small, with its entities, else `remove_deleted` removes them."""
    table, hidden = collection.table_name, db.rows(_HIDDEN, (scope.tenant_id,))
    own = Collection.name == collection.name
    if not hidden and not any(_has_more(rows, SMALL) for rows in _rows_of(scope.tenant_id, table)):
        tables.drop_table(table)
        db.execute("DELETE FROM entity_change WHERE tenant_id = ? AND collection = ?", (scope.tenant_id, table))
        scope.delete(Collection).where(own).execute()
        return
    tables.drop_own_foreign_keys(table)
    at = max(clock.now_ms(), *(updated_at + 1 for _, updated_at in hidden)) if hidden else clock.now_ms()
    scope.update(
        Collection, name=f"-{table}", definition=_without_relations(collection.definition).to_stored(), stamp=secrets.token_hex(8),
        updated_at=at, removal_lease=0,
    ).where(own).execute()  # fmt: skip


def _rows_of(tenant_id: str, table: str) -> list[Rows]:
    return [Rows(table, "1 = 1"), Rows("entity_change", "tenant_id = ? AND collection = ?", (tenant_id, table))]


def _has_more(rows: Rows, number: int) -> bool:
    sql = f'SELECT 1 FROM "{rows.table}" WHERE {rows.where} LIMIT 1 OFFSET ?'  # noqa: S608  names of our own
    return bool(db.rows(sql, (*rows.params, number)))


def _without_relations(definition: CollectionDefinition) -> CollectionDefinition:
    """The definition with texts instead of relations: the collections that they name may become others."""
    fields = (replace(each, type="text", options={}) if each.type == "relation" else each for each in definition.fields)
    return replace(definition, fields=tuple(fields))


def release_entity(collection: CompiledCollection, entity_id: str) -> bool:
    """Inside a write: let no entity of a deleted collection refer to this one; whether any did.

    Conflict while too many do for one write: they are just being removed.
    """
    released = 0
    for table, _ in db.rows(_HIDDEN, (collection.tenant_id,)):
        for column in tables.list_relations(str(table), collection.table_name):
            some = f'SELECT rowid FROM "{table}" WHERE "{column}" = ? LIMIT ?'  # noqa: S608  names of our own
            sql = f'UPDATE "{table}" SET "{column}" = NULL WHERE rowid IN ({some})'  # noqa: S608
            released += db.execute(sql, (entity_id, MOST_UNLINKED - released))
            if released >= MOST_UNLINKED:
                raise Conflict(
                    Sentence(
                        "%(entity_id)s is referenced by many entities of a deleted collection, which are just being removed; try "
                        "again in a moment", entity_id=entity_id,
                    )
                )
    return released > 0


def remove_deleted() -> None:
    """Remove entities of deleted collections, of each tenant for a moment; what is left is removed by further calls."""
    for tenant_id, name, table, lease in db.rows(_DUE, (clock.now_ms(), MOST_DUE)):
        _remove((str(tenant_id), str(name)), str(table), int(lease))


def removal_due() -> int | None:
    """When there is something to remove (epoch ms), None without a deleted collection."""
    return LEASES.next_due()


def _remove(key: Key, table: str, lease: int) -> None:
    until, ends_at = clock.now_ms() + LEASE_MS, clock.monotonic() + TURN_SECONDS
    if not db.write(lambda: LEASES.claim(key, lease, until=until)):
        return
    permission = Permission(lambda: clock.monotonic() < ends_at and LEASES.is_current(key, until))
    entities, changes = _rows_of(key[0], table)
    remove_entities(permission, [table], 0)
    short_writes.delete_each(permission, [changes], 0)
    db.write(partial(_finish, key, until, (entities, changes)))


def _finish(key: Key, until: int, rows: Sequence[Rows]) -> None:
    """Inside a write: forget the collection if nothing is left of it, else leave it to the next turn.  Nothing if it is gone."""
    if not LEASES.is_current(key, until):
        return
    if any(map(short_writes.has_rows, rows)):
        LEASES.release(key, until, at=clock.now_ms())
        return
    tables.drop_table(rows[0].table)
    db.execute("DELETE FROM collection WHERE tenant_id = ? AND name = ?", key)


def remove_entities(permission: Permission, names: Sequence[str], total: int) -> int:
    """Delete all entities of these tables, of which those that refer to others come first, in short writes.

    Returns `total`, what was deleted before, with their number.  Entities that refer to each other, in a circle or in one
    collection, lose these relations first.
    """
    entities = [Rows(table, "1 = 1") for table in names]
    total = short_writes.delete_each(permission, entities, total)
    for each in entities:
        if short_writes.has_rows(each):
            for column in tables.list_relations(each.table):
                linked = Rows(each.table, f"\"{column}\" > ''")  # by its index
                short_writes.change(permission, linked, f'"{column}" = NULL', (), total)
    return short_writes.delete_each(permission, entities, total)
