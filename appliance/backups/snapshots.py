"""Consistent snapshots of the database, SQLite or PostgreSQL, as an SQLite file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from appliance.core.database import db
from appliance.core.database.sqlite import BUSY_SECONDS
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .copying import FileSource, build_text_indexes, copy_rows, create_schema, open_source, supported_number
from .problems import BackupInvalid, ShouldStop, full_disks, never, refuse_stopping


def take_snapshot(url: str, target: Path, should_stop: ShouldStop = never) -> None:
    """Writes the committed state to a new file without blocking writers.

    SQLite's VACUUM INTO reads in one transaction; the backup API would start again at every write.  From a server the rows
    are read in one REPEATABLE READ transaction, which needs no tools of the server, and the file can be restored to either
    kind of database.
    """
    target.touch(0o600)
    with full_disks():
        if db.is_sqlite():
            path = url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as own:
                own.execute("PRAGMA trusted_schema=0")
                own.set_progress_handler(lambda: int(should_stop()), 100_000)
                try:
                    own.execute("VACUUM INTO ?", (str(target),))
                except sqlite3.OperationalError:
                    refuse_stopping(should_stop)
                    raise
        else:
            with db.snapshot():
                copy_server(target, should_stop)


def copy_server(target: Path, should_stop: ShouldStop = never) -> None:
    """Writes all that the transaction of this thread sees on a server to a new file, which is not synced."""
    with closing(sqlite3.connect(target, isolation_level=None)) as file:
        _copy_all(file, should_stop)


def _copy_all(file: sqlite3.Connection, should_stop: ShouldStop) -> None:
    source = open_source()
    file.execute("PRAGMA synchronous=OFF")
    file.execute("BEGIN")
    create_schema(file, source)
    for table in source.tables():
        refuse_stopping(should_stop)
        copy_rows(source, file, table)
    for table, last in source.sequences().items():  # also to rows that were deleted since, so that no number is given out again
        file.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        file.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
    build_text_indexes(file)
    file.execute("COMMIT")


@contextmanager
def open_snapshot(path: Path, should_stop: ShouldStop = never) -> Iterator[sqlite3.Connection]:
    """Opens the file for reading; raises Stopped when the appliance is stopping, BackupInvalid when the file is damaged."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
        file.set_progress_handler(lambda: int(should_stop()), 100_000)
        try:
            yield file
        except sqlite3.DatabaseError as error:
            refuse_stopping(should_stop)
            raise BackupInvalid(
                Sentence("the database in the backup is damaged (%(error)s); use another copy of it", error=error)
            ) from error


def count_rows(file: sqlite3.Connection) -> dict[str, int]:
    """The number of rows of each table."""
    names = sorted(FileSource(file.execute).tables())
    return {name: int(file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for name in names}  # noqa: S608


def schema_number(file: sqlite3.Connection) -> int:
    """The number of the file's last migration.

    Raises ConfigInvalid without a schema, BackupInvalid for the schema of a development version that cannot be upgraded.
    """
    if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'migration'").fetchone():
        raise ConfigInvalid("the database has no schema yet; begin with `gos init`")
    return supported_number(int(file.execute("SELECT coalesce(max(number), 0) FROM migration").fetchone()[0]))


def check_integrity(file: sqlite3.Connection) -> None:
    """Raises BackupInvalid unless SQLite reports the file as intact and every foreign key has its row."""
    result = file.execute("PRAGMA integrity_check").fetchone()[0]
    if result != "ok":
        raise BackupInvalid(
            Sentence("the database in the backup is damaged (%(found)s); use another copy of it", found=result[:200])
        )
    if lost := file.execute("PRAGMA foreign_key_check").fetchone():
        raise BackupInvalid(
            Sentence("a row of %(lost)s in the backup refers to a missing row; use another copy of it", lost=lost[0])
        )
