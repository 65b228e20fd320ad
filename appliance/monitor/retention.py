"""Deleting what is older than its retention, in small transactions so that nobody waits for them."""

from functools import partial

from appliance.core import db

CHUNK = 2_000


def delete_older(table: str, key: str, column: str, before_ms: int) -> int:
    """Delete every tenant's rows of `table` whose `column` lies before `before_ms`; answers how many.

    `key` is what names a row beside the tenant.  The names are our own, never a caller's.
    """
    statement = (
        f"DELETE FROM {table} WHERE tenant_id = ? AND {key} IN "  # noqa: S608  # names of our own tables
        f"(SELECT {key} FROM {table} WHERE tenant_id = ? AND {column} < ? ORDER BY {column} LIMIT {CHUNK})"
    )
    deleted = 0
    for tenant_id in tenant_ids():
        while count := db.write(partial(db.execute, statement, (tenant_id, tenant_id, before_ms))):
            deleted += count
    return deleted


def tenant_ids() -> list[str]:
    """Every tenant; retention runs for the whole appliance."""
    return [str(row[0]) for row in db.rows("SELECT id FROM tenant ORDER BY id")]
