"""A database on a PostgreSQL server as the target of a move."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from appliance import migrations
from appliance.backups.copying import Row, Source, entity_statements, open_source, supported_number
from appliance.core.database import db
from appliance.core.database.loading import advance_sequences, drop_foreign_keys, insert_rows

from . import progress
from .origins import last_migration


class ServerTarget:
    """The server's database becomes the open one; foreign keys are dropped until every row is there, as rows of a table may
    refer to later ones.
    """

    def __init__(self, url: str) -> None:
        db.open_database(url)

    def tables(self) -> set[str]:
        """The names of all tables."""
        return set(db.database.get_tables())

    def progress(self) -> progress.Progress:
        """The record of an unfinished move."""
        return progress.read(db.rows(f"SELECT part, rows, details FROM {progress.TABLE}"))  # noqa: S608

    def begin(self, source: Source, origin: str) -> None:
        """Create the schema by its migrations, and the record, in one transaction."""
        number = supported_number(last_migration(source))
        tables, entities = source.tables(), list(entity_statements(source, sqlite=False))

        def create() -> None:
            migrations.migrate(number)
            for statement in entities:
                db.execute(statement)
            constraints = drop_foreign_keys()
            for table in reversed(tables):
                db.execute(f'DELETE FROM "{table}"')  # noqa: S608  # rows inserted by the baseline
            progress.begin(db.execute, origin, constraints)

        db.write(create)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], before: int) -> None:
        """Insert rows and record them, in one transaction."""

        def add() -> None:
            progress.advance(db.execute, table, before, len(rows))
            insert_rows(table, columns, rows)

        db.write(add)

    def complete(self, sequences: Mapping[str, int], constraints: Sequence[str]) -> None:
        """Restore the foreign keys, which checks every row, and set the sequences, in one transaction."""

        def restore() -> None:
            for statement in constraints:
                db.execute(statement)
            advance_sequences(sequences)
            progress.complete(db.execute)

        db.write(restore)

    @contextmanager
    def source(self) -> Iterator[Source]:
        """The target itself, to be compared with the source."""
        with db.snapshot():
            yield open_source()

    def finish(self) -> None:
        """Remove the record: from now on the database belongs to an appliance."""
        db.write(partial(db.execute, f"DROP TABLE {progress.TABLE}"))

    def close(self) -> None:
        db.close_database()
