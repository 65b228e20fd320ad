"""Connectors for relational databases: PostgreSQL, MySQL, MariaDB and SQLite."""

from gos_connector_sql.mysql import MysqlConnector
from gos_connector_sql.postgresql import PostgresqlConnector
from gos_connector_sql.sqlite import SqliteConnector

__all__ = ["MysqlConnector", "PostgresqlConnector", "SqliteConnector"]
