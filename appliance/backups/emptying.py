"""Ends the work of a tenant that is being deleted, and empties its tables in short writes, so that others hardly wait for it."""

from functools import partial
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.scope import TenantScope
from appliance.documents import NAMES

from .copying import ENTITIES, SEARCHED, open_source
from .import_cleanup import stop_runs

GOAL_SECONDS = 0.02
"""How long a write should last."""
FEWEST, MOST = 20, 2_000
Params = tuple[Any, ...]
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

    It can be interrupted and repeated.  Left to the write that deletes the tenant are entities that refer to each other in a
    circle, the collections, which name its tables, and what a late request still writes.
    """
    source, tenant = open_source(), (scope.tenant_id,)
    tables = source.tables()[::-1]
    collections = {str(row[0]) for row in db.rows("SELECT table_name FROM collection WHERE tenant_id = ?", tenant)}
    deleted = sum(_empty(table, "1 = 1", ()) for table in tables if table in collections)
    own = [table for table in tables if not ENTITIES.fullmatch(table) and "tenant_id" in source.columns(table)]
    return deleted + sum(_empty(table, "tenant_id = ?", tenant) for table in own if table != "collection")


def _number_of(table: str) -> str:
    """What numbers the rows of a table; a few on SQLite have only their primary key."""
    if not db.is_sqlite():
        return "ctid"
    if not db.rows("SELECT 1 FROM pragma_table_list WHERE name = ? AND wr", (table,)):
        return "rowid"
    return f"({', '.join(open_source().primary_key(table))})"


def _empty(table: str, where: str, params: Params) -> int:
    size, total, number = FEWEST, 0, _number_of(table)
    while True:
        try:
            deleted, took = db.write(partial(_delete_some, table, number, where, params, size), is_shared=True)
        except peewee.IntegrityError:
            return total
        if not deleted:
            return total
        total += deleted
        size = min(max(round(size * min(GOAL_SECONDS / max(took, 1e-4), 2.0)), FEWEST), MOST)


def _delete_some(table: str, number: str, where: str, params: Params, most: int) -> tuple[int, float]:
    """Inside a write: delete up to `most` rows, with what finds them in searches; returns how many, and the seconds it took."""
    began = clock.monotonic()
    some = f'SELECT {number.strip("()")} FROM "{table}" WHERE {where} LIMIT ?'  # noqa: S608  names of our own
    chosen, values = f"{number} = ANY(ARRAY({some}))" if number == "ctid" else f"{number} IN ({some})", (*params, most)
    if number == "rowid":  # the same rows for each statement
        values = tuple(row[0] for row in db.rows(some, values))
        chosen = f"rowid IN ({', '.join('?' * len(values))})"
    if table in SEARCHED:
        full_text.remove(table, chosen, values)
    if table == NAMES.table:
        NAMES.remove(chosen, values)
    deleted = db.execute(f'DELETE FROM "{table}" WHERE {chosen}', values)  # noqa: S608
    return deleted, clock.monotonic() - began
