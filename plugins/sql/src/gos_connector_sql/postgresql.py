"""PostgreSQL: what the connector declares, and the statements that are particular to it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Context, Json
from gos_connector_sql.connector import SqlConnector
from gos_connector_sql.declaration import settings_schema
from gos_connector_sql.session import Session
from gos_connector_sql.statement import Builder, Statement, parse

_DESCRIBE = """
SELECT CASE WHEN n.nspname = current_schema() THEN c.relname ELSE n.nspname || '.' || c.relname END AS "table",
       CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END AS kind,
       a.attname AS "column", format_type(a.atttypid, a.atttypmod) AS "type", NOT a.attnotnull AS nullable,
       coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) AS key
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg_toast%' AND has_table_privilege(c.oid, 'SELECT')
  AND (:table::text IS NULL OR :table::text IN (c.relname, n.nspname || '.' || c.relname))
ORDER BY n.nspname, c.relname, a.attnum
"""


class PostgresqlConnector(SqlConnector):
    """PostgreSQL 12 or later."""

    name = "postgresql"
    title = "PostgreSQL"
    tested_against = "PostgreSQL 15"
    default_port = 5432
    settings_schema: ClassVar[Json] = settings_schema(5432)
    builder = Builder('"')
    backslashes = False

    def connect(self, ctx: Context) -> Session:
        from gos_connector_sql.postgresql_session import PostgresqlSession  # loads the driver, which few appliances use

        return PostgresqlSession(self, ctx)

    def upsert(self, table: str, key: list[str], columns: list[str], rows: list[Mapping[str, Any]]) -> Statement:
        names = ", ".join(self.builder.name(column) for column in key)
        others = [self.builder.name(column) for column in columns if column not in key]
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        end = f" ON CONFLICT ({names}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")
        return self.builder.insert(table, columns, rows, end)

    def describe(self, session: Session, table: str | None) -> list[dict[str, Any]]:
        return session.run(parse(_DESCRIBE, {"table": table}, backslashes=False)).rows
