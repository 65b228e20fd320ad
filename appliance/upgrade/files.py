"""Changes an SQLite database as a whole, in one transaction, while no other process can open it.

SQLite's backup API writes all pages of another file into the open one and commits once: killed at any page, the next process that
opens the file has its former content.  The file keeps its inode, its rights and its locks, so no process that is waiting for it, of
whichever release, goes on with a file that has been renamed away.
"""

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from appliance.core.errors import Conflict
from appliance.core.sentences import Sentence
from appliance.migrations import LAST_SQL

from .journal import sync_folder

PAGES = 4096
"""The pages that are written between two looks at the disk; all of them are one transaction."""
_WAIT_SECONDS = 2.0
# The lock stays after the transaction, and the write-ahead log, which others may have left, is moved into the file.
_LOCKING = (
    "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA synchronous=FULL", "PRAGMA trusted_schema=0", "BEGIN EXCLUSIVE",
    "SELECT count(*) FROM sqlite_master", "COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)",
)  # fmt: skip
_PIECE = 1 << 20


class ExclusiveFile:
    """An SQLite file that no other process can read or write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._file = connection

    def copy_to(self, target: Path) -> str:
        """Copy the file, durably; the copy appears complete or not at all.  Returns its sha256."""
        draft = target.with_name(f"{target.name}.new")
        draft.unlink(missing_ok=True)
        draft.touch(0o600)
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
                self._file.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # a single file, whatever opens it
            digest = hash_file(draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)
        return digest

    def replace_with(self, source: Path) -> None:
        """Replace the whole content by that of another file, in one durable transaction."""
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as other:
            other.backup(self._file, pages=PAGES, progress=observe_pages)
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def last_migration(self) -> int:
        """The number of its last migration."""
        ((number,),) = self._file.execute(LAST_SQL).fetchall()
        return int(number)

    def is_intact(self) -> bool:
        """Whether SQLite's quick check reports no damage."""
        return bool(self._file.execute("PRAGMA quick_check").fetchone()[0] == "ok")


def observe_pages(_: int, remaining: int, total: int) -> None:
    """Called while pages are written; tests end the process here."""


@contextmanager
def exclusive_file(path: Path) -> Iterator[ExclusiveFile]:
    """Open an SQLite file that no other process has open, and keep all others out.  Conflict."""
    with closing(sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)) as connection:
        try:
            for statement in _LOCKING:
                connection.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise Conflict(Sentence(
                "another process uses %(path)s: stop the appliance, and wait until other `gos` commands have ended", path=path
            )) from error
        yield ExclusiveFile(connection)


def hash_file(path: Path) -> str:
    """The sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
