"""Deletes rows beyond their retention, in small transactions that block nobody for long."""

from collections.abc import Callable
from functools import partial

from appliance.core.database import db, full_text
from appliance.core.scope import tenant_ids

CHUNK = 2_000


def delete_older(table: str, key: str, column: str, before_ms: int) -> int:
    """Delete every tenant's rows of `table` whose `column` is less than `before_ms`; returns their number.

    `key` lists the columns that identify a row within a tenant.  All names are constants, never a caller's input.
    """
    oldest = f"SELECT {key} FROM {table} WHERE tenant_id = ? AND {column} < ? ORDER BY {column} LIMIT {CHUNK}"  # noqa: S608
    sql = f"DELETE FROM {table} WHERE tenant_id = ? AND ({key}) IN ({oldest})"  # noqa: S608
    return sum(delete_in_chunks(partial(db.execute, sql, (tenant_id, tenant_id, before_ms))) for tenant_id in tenant_ids())


def delete_older_by_number(table: str, number: str, column: str, before_ms: int, *, is_searched: bool = False) -> int:
    """As `delete_older`, of a table with a serial number; `is_searched` says that it has a full-text index.

    The tenant is not repeated outside: SQLite would then look for the numbers among all rows of the tenant.
    """
    oldest = f"SELECT {number} FROM {table} WHERE tenant_id = ? AND {column} < ? ORDER BY {column} LIMIT {CHUNK}"  # noqa: S608
    where = f"{number} IN ({oldest})"

    def delete(params: tuple[object, ...]) -> int:
        if is_searched:
            full_text.remove(table, where, params)
        return db.execute(f"DELETE FROM {table} WHERE {where}", params)  # noqa: S608

    return sum(delete_in_chunks(partial(delete, (tenant_id, before_ms))) for tenant_id in tenant_ids())


def delete_in_chunks(delete_chunk: Callable[[], int]) -> int:
    """Call a function that deletes some rows, in a write of its own each time, until it finds none; returns their number."""
    deleted = 0
    while count := db.write(delete_chunk):
        deleted += count
    return deleted
