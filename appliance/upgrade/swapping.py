"""Migrates the open database: all migrations, and the comparison of the rows, are one transaction."""

from collections.abc import Callable

from appliance import migrations
from appliance.backups.copying import open_source

from .counts import Counts, compare_counts, count_rows


def migrate_compared(before_all: Callable[[], None] = lambda: None, after_all: Callable[[], None] = lambda: None) -> list[str]:
    """Bring the open database to this release's schema, or leave it as it is; returns the names of the migrations.

    UpgradeFailed if a row is missing afterwards.  `before_all` and `after_all` are called in the same transaction, which may be
    repeated.
    """
    before: Counts = {}

    def count() -> None:
        before.clear()
        before_all()
        before.update(count_rows(open_source()))

    def compare() -> None:
        source = open_source()
        compare_counts(before, count_rows(source), set(source.tables()))
        after_all()

    return migrations.migrate_at_once(count, compare)
