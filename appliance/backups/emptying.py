"""Ends the work of a tenant that is being deleted or reset, and empties its tables in short writes, so that others hardly wait."""

from collections.abc import Collection
from functools import partial
from typing import Any

from appliance.core.database import db, full_text
from appliance.core.database.bulk import short_writes
from appliance.core.database.bulk.short_writes import Permission, Rows
from appliance.core.scope import TenantScope
from appliance.datapool import remove_entities
from appliance.documents import NAMES

from .copying import ENTITIES, SEARCHED, open_source
from .unfinished_work import stop_claimed, stop_runs

# What starts something or serves visitors, and what admits people and programs; a tenant has few of each, and nothing belongs to
# them of which it has many, as messages belong to webhooks: those are not sent, because the tenant is closed or being reset.
_STARTS = ("trigger_state", "trigger_source", "domain", "document_share")
_ACCESS = ("api_key", "session", "membership", "invitation")


def end_work(scope: TenantScope) -> None:
    """Inside the write that closes a tenant: from now on nothing of it is executed, sent or served, and nobody has access."""
    stop_claimed(scope)
    _delete_all(scope, (*_STARTS, *_ACCESS))


def stop_work(scope: TenantScope) -> int:
    """Inside the write that begins the reset of a tenant: from now on nothing of it is executed, sent or served.

    Returns the number of rows deleted for that.
    """
    stop_claimed(scope)
    return _delete_all(scope, _STARTS)


def _delete_all(scope: TenantScope, tables: Collection[str]) -> int:
    return sum(db.execute(f'DELETE FROM "{table}" WHERE tenant_id = ?', (scope.tenant_id,)) for table in tables)  # noqa: S608


def empty_tenant(scope: TenantScope) -> int:
    """Delete the rows of a closed tenant; nothing of a tenant that is not closed.  See `empty_tables`."""
    source = open_source()
    own = {table for table in source.tables() if not ENTITIES.fullmatch(table) and "tenant_id" in source.columns(table)}
    return empty_tables(scope, own, Permission(partial(_is_closed, scope)))


def empty_tables(scope: TenantScope, tables: Collection[str], permission: Permission) -> int:
    """Cancel what the tenant has not finished, so that whoever waits for it gets an answer, and delete its rows of tables, and its
    entities, in many short writes; rows that refer to others first.

    Returns their number.  It can be interrupted and repeated.  Entities that refer to each other, in a circle or in one collection,
    lose these relations first.  Left are the collections, which name the tables of entities, and what a late request still writes.
    """
    stop_runs(scope, permission)
    ordered = open_source().tables()[::-1]
    own = {str(name) for (name,) in db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", (scope.tenant_id,))}
    total = remove_entities(permission, [table for table in ordered if table in own], 0)
    others = [_rows_of(scope, table) for table in ordered if table in {*tables} - {"collection"}]
    return short_writes.delete_each(permission, others, total)


def _rows_of(scope: TenantScope, table: str) -> Rows:
    return Rows(table, "tenant_id = ?", (scope.tenant_id,), partial(_forget, table))


def _forget(table: str, chosen: str, values: tuple[Any, ...]) -> None:
    """Inside a write: delete what finds these rows in searches."""
    if table in SEARCHED:
        full_text.remove(table, chosen, values)
    if table == NAMES.table:
        NAMES.remove(chosen, values)


def _is_closed(scope: TenantScope) -> bool:
    sql = f"SELECT 1 FROM tenant WHERE id = ? AND closed_at IS NOT NULL{db.row_lock()}"  # noqa: S608  our own words
    return bool(db.rows(sql, (scope.tenant_id,)))
