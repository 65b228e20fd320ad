"""Deletes rows beyond their retention, in small transactions that block nobody for long."""

from functools import partial

from appliance.core.database import db, full_text
from appliance.core.scope import tenant_ids

CHUNK = 2_000


def delete_older(table: str, key: str, column: str, before_ms: int, *, is_searched: bool = False) -> int:
    """Delete every tenant's rows of `table` whose `column` is less than `before_ms`; returns their number.

    `key` lists the columns that identify a row within a tenant, `is_searched` says that the table has a full-text index.  All names
    are constants, never a caller's input.
    """
    oldest = f"SELECT {key} FROM {table} WHERE tenant_id = ? AND {column} < ? ORDER BY {column} LIMIT {CHUNK}"  # noqa: S608
    where = f"tenant_id = ? AND ({key}) IN ({oldest})"

    def delete(params: tuple[object, ...]) -> int:
        if is_searched:
            full_text.remove(table, where, params)
        return db.execute(f"DELETE FROM {table} WHERE {where}", params)  # noqa: S608

    deleted = 0
    for tenant_id in tenant_ids():
        while count := db.write(partial(delete, (tenant_id, tenant_id, before_ms))):
            deleted += count
    return deleted
