"""MySQL and MariaDB: what the connector declares, and the statements that are particular to them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import Context, Json
from gos_connector_sql.connector import SqlConnector
from gos_connector_sql.declaration import settings_schema
from gos_connector_sql.session import Session
from gos_connector_sql.statement import Builder, Statement, parse

_DESCRIBE = """
SELECT IF(c.TABLE_SCHEMA = DATABASE(), c.TABLE_NAME, CONCAT(c.TABLE_SCHEMA, '.', c.TABLE_NAME)) AS `table`,
       IF(t.TABLE_TYPE LIKE '%VIEW', 'view', 'table') AS kind, c.COLUMN_NAME AS `column`, c.COLUMN_TYPE AS `type`,
       c.IS_NULLABLE = 'YES' AS nullable, COALESCE(k.ORDINAL_POSITION, 0) AS `key`
FROM information_schema.COLUMNS c
JOIN information_schema.TABLES t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
LEFT JOIN information_schema.KEY_COLUMN_USAGE k ON k.TABLE_SCHEMA = c.TABLE_SCHEMA AND k.TABLE_NAME = c.TABLE_NAME
  AND k.COLUMN_NAME = c.COLUMN_NAME AND k.CONSTRAINT_NAME = 'PRIMARY'
WHERE c.TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
  AND (:table IS NULL AND c.TABLE_SCHEMA = DATABASE() OR CONCAT(c.TABLE_SCHEMA, '.', c.TABLE_NAME) = :table
       OR c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = :table)
ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION
"""


class MysqlConnector(SqlConnector):
    """MySQL 8, or MariaDB 10.5 or later."""

    name = "mysql"
    title = "MySQL or MariaDB"
    tested_against = "MariaDB 10.11"
    default_port = 3306
    settings_schema: ClassVar[Json] = settings_schema(3306)
    builder = Builder("`")
    backslashes = True

    def connect(self, ctx: Context) -> Session:
        from gos_connector_sql.mysql_session import MysqlSession  # loads the driver, which few appliances use

        return MysqlSession(self, ctx)

    def upsert(self, table: str, key: list[str], columns: list[str], rows: list[Mapping[str, Any]]) -> Statement:
        others = [column for column in columns if column not in key] or key[:1]
        sets = ", ".join(f"{name} = VALUES({name})" for name in map(self.builder.name, others))
        return self.builder.insert(table, columns, rows, f" ON DUPLICATE KEY UPDATE {sets}")

    def describe(self, session: Session, table: str | None) -> list[dict[str, Any]]:
        return session.run(parse(_DESCRIBE, {"table": table}, backslashes=True)).rows
