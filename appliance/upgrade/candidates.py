"""The copies that are upgraded and tried out: an SQLite file, or a schema of the database on a server."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from appliance import migrations
from appliance.backups.copying import FileSource, open_source
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.sentences import Sentence

from .checks import opened_url
from .counts import Counts, compare_counts, count_rows
from .problems import UpgradeFailed
from .swapping import migrate_compared

_DATABASE = "gos.db"


class Candidate(Protocol):
    """A copy of the database, which is thrown away; `room` is a temporary folder, `is_live`: the appliance may be running."""

    @property
    def config(self) -> Config: ...
    @property
    def room(self) -> Path: ...
    @property
    def is_live(self) -> bool: ...

    def count(self) -> Counts:
        """The rows before the migrations."""

    def migrate(self) -> list[str]:
        """Run all migrations; returns their names."""

    def check(self, before: Counts) -> Counts:
        """UpgradeFailed unless the copy is intact, every foreign key has its row, and no row is missing; returns the counts."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """The copy as the open database."""

    def place(self, data: Path) -> str:
        """Make the copy that of a data folder; returns its `storage.database`."""


@dataclass(frozen=True)
class FileCandidate:
    """An SQLite file."""

    config: Config
    room: Path
    file: Path
    is_live: bool

    def count(self) -> Counts:
        with self._reading() as own:
            return count_rows(FileSource(own.execute))

    def migrate(self) -> list[str]:
        with self.opened():
            return migrations.migrate()

    def check(self, before: Counts) -> Counts:
        with self._reading() as own:
            result = own.execute("PRAGMA integrity_check").fetchone()[0]
            if result != "ok":
                raise UpgradeFailed(
                    Sentence("SQLite reports the copy as damaged after the migrations (%(result)s)", result=result[:200])
                )
            if lost := own.execute("PRAGMA foreign_key_check").fetchone():
                raise UpgradeFailed(Sentence("a row of %(table)s refers to a missing row after the migrations", table=lost[0]))
            source = FileSource(own.execute)
            after = count_rows(source)
            compare_counts(before, after, set(source.tables()))
        return after

    def _reading(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(f"{self.file.absolute().as_uri()}?mode=ro", uri=True))

    @contextmanager
    def opened(self) -> Iterator[None]:
        """As in `Candidate`; afterwards it is one file without a log."""
        with opened_url(f"sqlite:///{self.file}"):
            yield
        merge_log(self.file)

    def place(self, data: Path) -> str:
        self.file.rename(data / _DATABASE)
        return ""


@dataclass(frozen=True)
class SchemaCandidate:
    """A schema of the database on a server, which sees to it that every foreign key has its row."""

    config: Config
    room: Path
    url: str
    is_live: bool

    def count(self) -> Counts:
        with self.opened(), db.snapshot():
            return count_rows(open_source())

    def migrate(self) -> list[str]:
        """All in one transaction, as the swap does."""
        with self.opened():
            return migrate_compared()

    def check(self, before: Counts) -> Counts:
        with self.opened(), db.snapshot():
            source = open_source()
            after = count_rows(source)
            compare_counts(before, after, set(source.tables()))
        return after

    @contextmanager
    def opened(self) -> Iterator[None]:
        with opened_url(self.url):
            yield

    def place(self, data: Path) -> str:
        return self.url


def merge_log(file: Path) -> None:
    """Move the write-ahead log of a closed SQLite file into it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as own:
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
