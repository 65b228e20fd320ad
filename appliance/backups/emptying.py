"""Ends the work of a tenant that is being deleted or reset, and empties its tables in short writes, so that others hardly wait."""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.scope import TenantScope
from appliance.datapool import from_stored
from appliance.documents import NAMES

from .copying import ENTITIES, SEARCHED, open_source
from .unfinished_work import stop_runs

GOAL_SECONDS = 0.02
"""How long a write should last."""
FEWEST, MOST = 20, 2_000
# What starts something or serves visitors, and what admits people and programs; a tenant has few of each.
_STARTS = ("trigger_state", "trigger_source", "webhook", "alert", "domain", "document_share")
_ACCESS = ("api_key", "session", "membership", "invitation")


@dataclass(frozen=True)
class Permission:
    """The right to delete rows of a tenant: `check` is called in each write before it deletes, and if it returns False nothing is
    deleted any more; `record` is called at its end, with the number of all rows deleted so far."""

    check: Callable[[], bool]
    record: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class _Rows:
    """The rows of a table that match a condition; `number` is what identifies one of them."""

    table: str
    number: str
    where: str
    params: tuple[Any, ...]


def end_work(scope: TenantScope) -> None:
    """Inside the write that closes a tenant: from now on nothing of it is executed, sent or served, and nobody has access."""
    stop_runs(scope)
    _delete_all(scope, (*_STARTS, *_ACCESS))


def stop_work(scope: TenantScope) -> int:
    """Inside the write that begins the reset of a tenant: from now on nothing of it is executed, sent or served.

    Returns the number of rows deleted for that.
    """
    stop_runs(scope)
    return _delete_all(scope, _STARTS)


def _delete_all(scope: TenantScope, tables: Collection[str]) -> int:
    return sum(db.execute(f'DELETE FROM "{table}" WHERE tenant_id = ?', (scope.tenant_id,)) for table in tables)  # noqa: S608


def empty_tenant(scope: TenantScope) -> int:
    """Delete the rows of a closed tenant; nothing of a tenant that is not closed.  See `empty_tables`."""
    source = open_source()
    own = {table for table in source.tables() if not ENTITIES.fullmatch(table) and "tenant_id" in source.columns(table)}
    return empty_tables(scope, own, Permission(partial(_is_closed, scope)))


def empty_tables(scope: TenantScope, tables: Collection[str], permission: Permission) -> int:
    """Delete the tenant's rows of tables, and its entities, in many short writes; rows that refer to others first.

    Returns their number.  It can be interrupted and repeated.  Entities that refer to each other, in a circle or in one collection,
    lose these relations first.  Left are the collections, which name the tables of entities, and what a late request still writes.
    """
    tenant, ordered = (scope.tenant_id,), open_source().tables()[::-1]
    relations = _list_relations(scope)
    entities = [_Rows(table, _number_of(table), "1 = 1", ()) for table in ordered if table in relations]
    others = [_Rows(table, _number_of(table), "tenant_id = ?", tenant) for table in ordered if table in {*tables} - {"collection"}]
    total = _empty_each(permission, entities, 0)
    for each in entities:
        if _has_rows(each):
            for column in relations[each.table]:
                _unlink(permission, each, column, total)
    return _empty_each(permission, [*entities, *others], total)


def _list_relations(scope: TenantScope) -> dict[str, list[str]]:
    """By table of entities, the columns that refer to entities."""
    rows = db.rows("SELECT table_name, definition FROM collection WHERE tenant_id = ?", (scope.tenant_id,))
    fields = {str(table): from_stored(json.loads(definition)).fields for table, definition in rows}
    return {table: [field.column for field in each if field.type == "relation"] for table, each in fields.items()}


def _empty_each(permission: Permission, rows: Iterable[_Rows], total: int) -> int:
    for each in rows:
        if _has_rows(each):
            total = _empty(permission, each, total)
    return total


def _has_rows(rows: _Rows) -> bool:
    return bool(db.rows(f'SELECT 1 FROM "{rows.table}" WHERE {rows.where} LIMIT 1', rows.params))  # noqa: S608  names of our own


def _number_of(table: str) -> str:
    """What identifies a row of a table; a few on SQLite have only their primary key."""
    if not db.is_sqlite():
        return "ctid"
    if not db.rows("SELECT 1 FROM pragma_table_list WHERE name = ? AND wr", (table,)):
        return "rowid"
    return f"({', '.join(open_source().primary_key(table))})"


def _empty(permission: Permission, rows: _Rows, total: int) -> int:
    """Delete the rows; returns how many have been deleted with these, of the total before."""
    size = FEWEST
    while True:
        try:
            deleted, took = db.write(partial(_delete_some, permission, rows, size, total), is_shared=True)
        except peewee.IntegrityError:
            return total
        if not deleted:
            return total
        total += deleted
        size = _next_size(size, took)


def _next_size(size: int, took: float) -> int:
    """How many rows the next write changes, so that it takes about the goal."""
    return min(max(round(size * min(GOAL_SECONDS / max(took, 1e-4), 2.0)), FEWEST), MOST)


def _unlink(permission: Permission, rows: _Rows, column: str, total: int) -> None:
    """Remove a relation from all rows of a table of entities, which nobody sees any more."""
    size = FEWEST
    while True:
        changed, took = db.write(partial(_unlink_some, permission, rows, (column, size), total), is_shared=True)
        if not changed:
            return
        size = _next_size(size, took)


def _unlink_some(permission: Permission, rows: _Rows, part: tuple[str, int], total: int) -> tuple[int, float]:
    """Inside a write: remove a relation from up to so many rows; returns from how many, and the seconds it took."""
    began, (column, most) = clock.monotonic(), part
    if not permission.check():
        return 0, 0.0
    some = f'SELECT {rows.number.strip("()")} FROM "{rows.table}" WHERE "{column}" > \'\' LIMIT ?'  # noqa: S608  names of our own; by its index
    chosen = f"ctid = ANY(ARRAY({some}))" if rows.number == "ctid" else f"{rows.number} IN ({some})"
    changed = db.execute(f'UPDATE "{rows.table}" SET "{column}" = NULL WHERE {chosen}', (most,))  # noqa: S608
    if changed:
        permission.record(total)
    return changed, clock.monotonic() - began


def _delete_some(permission: Permission, rows: _Rows, most: int, total: int) -> tuple[int, float]:
    """Inside a write: delete up to `most` rows, with what finds them in searches; returns how many, and the seconds it took."""
    began, values = clock.monotonic(), (*rows.params, most)
    if not permission.check():  # another process has deleted the tenant, and its id may be in use again
        return 0, 0.0
    some = f'SELECT {rows.number.strip("()")} FROM "{rows.table}" WHERE {rows.where} LIMIT ?'  # noqa: S608  names of our own
    if rows.number == "rowid":  # the same rows for each statement
        values = tuple(row[0] for row in db.rows(some, values))
        chosen = f"rowid IN ({', '.join('?' * len(values))})"
    else:
        chosen = f"ctid = ANY(ARRAY({some}))" if rows.number == "ctid" else f"{rows.number} IN ({some})"
    if rows.table in SEARCHED:
        full_text.remove(rows.table, chosen, values)
    if rows.table == NAMES.table:
        NAMES.remove(chosen, values)
    deleted = db.execute(f'DELETE FROM "{rows.table}" WHERE {chosen}', values)  # noqa: S608
    if deleted:
        permission.record(total + deleted)
    return deleted, clock.monotonic() - began


def _is_closed(scope: TenantScope) -> bool:
    sql = f"SELECT 1 FROM tenant WHERE id = ? AND closed_at IS NOT NULL{db.row_lock()}"  # noqa: S608  our own words
    return bool(db.rows(sql, (scope.tenant_id,)))
