"""The database: writers, readers, and all differences between SQLite and PostgreSQL."""

from appliance.core.imports import import_without

# Drivers take a third of a second and 10 MB; `postgresql.py` imports the one that it needs.
import_without("peewee", "psycopg", "psycopg2", "pymysql", "MySQLdb")

from peewee import DatabaseError as DatabaseError  # noqa: E402  after the import above, which it would make useless
