"""One moment of the database as an SQLite file, whatever kind the database is."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from appliance.core.database import db
from appliance.core.database.sqlite import BUSY_SECONDS
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .copying import FileSource, copy_rows, index_words, make_schema, open_source
from .problems import BackupInvalid, ShouldStop, full_disks, never, refuse_stopping


def take_snapshot(url: str, target: Path, should_stop: ShouldStop = never) -> None:
    """Write what is committed now to a new file; writers go on meanwhile.

    SQLite's VACUUM INTO reads in one transaction beside writers; the backup API would begin anew at every write.  From a
    server the rows are read in one REPEATABLE READ transaction: no program of the server's has to be there, and the file
    restores on either kind of database.
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
            with closing(sqlite3.connect(target, isolation_level=None)) as file, db.snapshot():
                _copy_all(file, should_stop)


def _copy_all(file: sqlite3.Connection, should_stop: ShouldStop) -> None:
    source = open_source()
    file.execute("PRAGMA synchronous=OFF")  # a draft: it is read back before it is worth anything
    file.execute("BEGIN")
    make_schema(file, source)
    for table in source.tables():
        refuse_stopping(should_stop)
        copy_rows(source, file, table)
    index_words(file)
    file.execute("COMMIT")


@contextmanager
def opened_snapshot(path: Path, should_stop: ShouldStop = never) -> Iterator[sqlite3.Connection]:
    """The file for reading, which ends when the appliance is about to stop; BackupInvalid when it is not whole."""
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
    """How many rows each table has."""
    names = sorted(FileSource(file.execute).tables())
    return {name: int(file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for name in names}  # noqa: S608


def schema_number(file: sqlite3.Connection) -> int:
    """The last migration of the file; ConfigInvalid when it has none."""
    if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'migration'").fetchone():
        raise ConfigInvalid("the database has no schema yet; begin with `gos init`")
    return int(file.execute("SELECT coalesce(max(number), 0) FROM migration").fetchone()[0])


def check_whole(file: sqlite3.Connection) -> None:
    """BackupInvalid unless SQLite finds the file whole and every reference leads somewhere."""
    found = file.execute("PRAGMA integrity_check").fetchone()[0]
    if found != "ok":
        raise BackupInvalid(
            Sentence("the database in the backup is damaged (%(found)s); use another copy of it", found=found[:200])
        )
    if lost := file.execute("PRAGMA foreign_key_check").fetchone():
        raise BackupInvalid(
            Sentence("a row of %(lost)s in the backup refers to one that is not there; use another copy of it", lost=lost[0])
        )
