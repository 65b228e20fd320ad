"""An SQLite file as the target of a move."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.backups.copying import FileSource, Row, Source, build_text_indexes, create_schema
from appliance.core.sentences import Sentence

from . import progress
from .problems import MoveFailed


class FileTarget:
    """The file is written directly, without the writer of `db`, with foreign keys off until every row is there."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(0o600)
        self._file = sqlite3.connect(path, isolation_level=None)
        for pragma in ("synchronous=FULL", "foreign_keys=0", "trusted_schema=0"):
            self._file.execute(f"PRAGMA {pragma}")

    def tables(self) -> set[str]:
        """The names of all tables."""
        return {str(row[0]) for row in self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def progress(self) -> progress.Progress:
        """The record of an unfinished move."""
        return progress.read(self._file.execute(f"SELECT part, rows, details FROM {progress.TABLE}").fetchall())  # noqa: S608

    def begin(self, source: Source, origin: str) -> None:
        """Create the schema and the record, in one transaction."""
        self._file.execute("PRAGMA journal_mode=WAL")  # Not earlier: it changes the file.
        with self._transaction():
            create_schema(self._file, source)
            progress.begin(self._execute, origin, [])

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], before: int) -> None:
        """Insert rows and record them, in one transaction."""
        listed = ", ".join(f'"{column}"' for column in columns)
        with self._transaction():
            progress.advance(self._execute, table, before, len(rows))
            sql = f'INSERT INTO "{table}" ({listed}) VALUES ({", ".join("?" * len(columns))})'  # noqa: S608  # names of our own
            self._file.executemany(sql, rows)

    def complete(self, sequences: Mapping[str, int], _: Sequence[str]) -> None:
        """Build the full-text indexes, set the last serials and check foreign keys, in one transaction."""
        with self._transaction():
            build_text_indexes(self._file)
            for table, last in sequences.items():
                if not self._execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (last, table)):
                    self._execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
            if broken := self._file.execute("PRAGMA foreign_key_check").fetchone():
                raise MoveFailed(Sentence(
                    "a row of %(table)s refers to a missing row of %(other)s; the source is unchanged. Delete the target database "
                    "and run the command again", table=broken[0], other=broken[2],
                ))
            progress.complete(self._execute)

    @contextmanager
    def source(self) -> Iterator[Source]:
        """The target itself, to be compared with the source."""
        yield FileSource(self._file.execute)

    def finish(self) -> None:
        """Remove the record: from now on the database belongs to an appliance."""
        with self._transaction():
            self._execute(f"DROP TABLE {progress.TABLE}", ())

    def close(self) -> None:
        self._file.close()

    def _execute(self, sql: str, params: tuple[Any, ...]) -> int:
        return self._file.execute(sql, params).rowcount

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
