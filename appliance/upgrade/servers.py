"""Migrates a PostgreSQL database: all migrations, and the comparison of the rows, are one transaction of the server."""

from appliance import migrations
from appliance.backups.copying import open_source
from appliance.core.config import Config

from .checks import opened_database
from .counts import Counts, compare_counts, count_rows


def migrate_server(config: Config) -> list[str]:
    """Bring the database on a server to this release's schema, or leave it as it is; returns the names of the migrations."""
    with opened_database(config):
        before: Counts = {}

        def count() -> None:
            before.clear()  # the transaction may be repeated
            before.update(count_rows(open_source()))

        def compare() -> None:
            source = open_source()
            compare_counts(before, count_rows(source), set(source.tables()))

        return migrations.migrate_at_once(count, compare)
