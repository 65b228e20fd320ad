"""Changes an SQLite database in one transaction, while no other process can open it.

A roll back writes all pages of another file into the open one by SQLite's backup API, which commits once: killed at any page, the
next process that opens the file has its former content.  The file keeps its inode, its rights and its locks, so no process that is
waiting for it, of whichever release, goes on with a file that has been renamed away.
"""

import errno
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.sentences import Sentence
from appliance.migrations import LAST_SQL

from .journal import sync_folder

PAGES = 4096
"""The pages that are written between two looks at the disk; all of them are one transaction."""
_WAIT_SECONDS = 2.0
# The lock stays after the transaction, and the write-ahead log, which others may have left, is moved into the file.
_LOCKING = (
    "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA synchronous=FULL", "PRAGMA trusted_schema=0", "PRAGMA foreign_keys=1",
    "BEGIN EXCLUSIVE", "SELECT count(*) FROM sqlite_master", "COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)",
)  # fmt: skip
_PIECE, _MOST_AT_ONCE = 1 << 20, 1 << 30
# Of file systems, or of two of them, between which the kernel does not copy.
_UNABLE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class ExclusiveFile:
    """An SQLite file that no other process can read or write."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._file = path, connection

    def copy_to(self, target: Path) -> str:
        """Copy the file, durably; the copy appears complete or not at all.  Returns its sha256."""
        draft = target.with_name(f"{target.name}.new")
        draft.unlink(missing_ok=True)
        draft.touch(0o600)
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
                self._file.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # a single file, whatever opens it
            return place_file(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def replace_with(self, source: Path) -> None:
        """Replace the whole content by that of another file, in one durable transaction."""
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as other:
            other.backup(self._file, pages=PAGES, progress=observe_pages)
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def last_migration(self) -> int:
        """The number of its last migration."""
        ((number,),) = self._file.execute(LAST_SQL).fetchall()
        return int(number)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """In the block, `db` is this file, inside one durable transaction, which an error undoes."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            with db.use_connection(self._path, self._file):
                yield
            self._file.execute("COMMIT")
        finally:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")


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
        yield ExclusiveFile(path, connection)


def place_file(draft: Path, target: Path) -> str:
    """Give a complete file its name, durably; returns its sha256."""
    digest = hash_file(draft)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)
    sync_folder(target.parent)
    return digest


def copy_file(source: Path, target: Path) -> None:
    """Copy a file that is thrown away again; file systems that can share blocks of the two do."""
    with source.open("rb") as file, target.open("wb") as copy:
        try:
            while os.copy_file_range(file.fileno(), copy.fileno(), _MOST_AT_ONCE):
                continue
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            shutil.copyfile(source, target)


def hash_file(path: Path) -> str:
    """The sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
