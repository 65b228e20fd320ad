"""Connectors for relational databases: PostgreSQL, MySQL and MariaDB."""

from gos_connector_sql.mysql import MysqlConnector
from gos_connector_sql.postgresql import PostgresqlConnector

__all__ = ["MysqlConnector", "PostgresqlConnector"]
