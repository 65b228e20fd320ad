"""Migrates the open database: all migrations, and the comparison of the rows, are one transaction."""

from appliance import migrations
from appliance.backups.copying import open_source

from .counts import Counts, compare_counts, count_rows


def migrate_compared() -> list[str]:
    """Bring the open database to this release's schema, or leave it as it is; returns the names of the migrations.

    UpgradeFailed if a row is missing afterwards.
    """
    before: Counts = {}

    def count() -> None:
        before.clear()  # the transaction may be repeated
        before.update(count_rows(open_source()))

    def compare() -> None:
        source = open_source()
        compare_counts(before, count_rows(source), set(source.tables()))

    return migrations.migrate_at_once(count, compare)
