"""Ends the work of a tenant that is being deleted, and empties its tables in short writes, so that others hardly wait for it."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.scope import TenantScope
from appliance.documents import NAMES

from .copying import ENTITIES, SEARCHED, open_source
from .unfinished_work import stop_runs

GOAL_SECONDS = 0.02
"""How long a write should last."""
FEWEST, MOST = 20, 2_000
# What admits people and programs or starts something; a tenant has few of each.
_ENTRANCES = (
    "trigger_state", "trigger_source", "webhook", "alert", "domain", "document_share", "api_key", "session", "membership",
    "invitation",
)  # fmt: skip


def end_work(scope: TenantScope) -> None:
    """Inside the write that closes a tenant: from now on nothing of it is executed, sent or served, and nobody has access."""
    stop_runs(scope)
    for table in _ENTRANCES:
        db.execute(f'DELETE FROM "{table}" WHERE tenant_id = ?', (scope.tenant_id,))  # noqa: S608  names of our own


def empty_tenant(scope: TenantScope) -> int:
    """Delete the rows of a closed tenant in many short writes, rows that refer to others first; returns their number.

    It can be interrupted and repeated, and does nothing to a tenant that is not closed.  Left to the write that deletes the
    tenant are entities that refer to each other in a circle, the collections, which name its tables, and what a late request
    still writes.
    """
    source, tenant = open_source(), (scope.tenant_id,)
    tables = source.tables()[::-1]
    collections = {str(row[0]) for row in db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", tenant)}
    deleted = sum(_empty(scope, _Rows(table, _number_of(table), "1 = 1", ())) for table in tables if table in collections)
    own = [table for table in tables if not ENTITIES.fullmatch(table) and "tenant_id" in source.columns(table)]
    own.remove("collection")
    return deleted + sum(_empty(scope, _Rows(table, _number_of(table), "tenant_id = ?", tenant)) for table in own)


@dataclass(frozen=True)
class _Rows:
    """The rows of a table that match a condition; `number` is what identifies one of them."""

    table: str
    number: str
    where: str
    params: tuple[Any, ...]


def _number_of(table: str) -> str:
    """What identifies a row of a table; a few on SQLite have only their primary key."""
    if not db.is_sqlite():
        return "ctid"
    if not db.rows("SELECT 1 FROM pragma_table_list WHERE name = ? AND wr", (table,)):
        return "rowid"
    return f"({', '.join(open_source().primary_key(table))})"


def _empty(scope: TenantScope, rows: _Rows) -> int:
    size, total = FEWEST, 0
    while True:
        try:
            deleted, took = db.write(partial(_delete_some, scope, rows, size), is_shared=True)
        except peewee.IntegrityError:
            return total
        if not deleted:
            return total
        total += deleted
        size = min(max(round(size * min(GOAL_SECONDS / max(took, 1e-4), 2.0)), FEWEST), MOST)


def _delete_some(scope: TenantScope, rows: _Rows, most: int) -> tuple[int, float]:
    """Inside a write: delete up to `most` rows, with what finds them in searches; returns how many, and the seconds it took."""
    began, values = clock.monotonic(), (*rows.params, most)
    if not _is_closed(scope):  # another process has deleted it, and its id may be in use again
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
    return deleted, clock.monotonic() - began


def _is_closed(scope: TenantScope) -> bool:
    sql = f"SELECT 1 FROM tenant WHERE id = ? AND closed_at IS NOT NULL{db.row_lock()}"  # noqa: S608  our own words
    return bool(db.rows(sql, (scope.tenant_id,)))
