"""The write-ahead log is read up to the last commit, and never beyond it, also behind what killed processes have left."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance.backups.points.wal import FRAME_HEAD, HEADER, LogChanged, LogReader

FRAME = FRAME_HEAD + 4096


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "some.db"


@pytest.fixture
def writer(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("PRAGMA cache_size=10")
        connection.execute("CREATE TABLE words (word TEXT)")
        yield connection


@pytest.fixture
def reader(database: Path) -> Iterator[LogReader]:
    with closing(LogReader(database)) as log:
        yield log


def frames_of(writer: sqlite3.Connection) -> int:
    """The frames of the log by SQLite's own account, which makes it ready to begin again."""
    return int(writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])


def size_of(database: Path) -> int:
    return database.with_name("some.db-wal").stat().st_size


def insert(writer: sqlite3.Connection, count: int) -> None:
    writer.execute("BEGIN")
    writer.executemany("INSERT INTO words VALUES (?)", [("w" * 3000,)] * count)
    writer.execute("COMMIT")


def test_commits_are_seen_and_uncommitted_frames_are_not(writer: sqlite3.Connection, reader: LogReader, database: Path) -> None:
    for count in (1, 5, 200):
        insert(writer, count)
        assert reader.look()
        assert reader.frame * FRAME == size_of(database) - HEADER
        assert not reader.look()
    before = reader.frame
    writer.execute("BEGIN")
    writer.executemany("INSERT INTO words VALUES (?)", [("x" * 3000,)] * 200)  # more than fits the cache, so frames are written
    assert size_of(database) > HEADER + (before + 50) * FRAME
    assert not reader.look()
    writer.execute("ROLLBACK")
    assert not reader.look()
    insert(writer, 2)
    assert reader.look()
    assert reader.frame == frames_of(writer)
    assert before < reader.frame < before + 20


def test_frames_behind_a_damaged_one_do_not_count(writer: sqlite3.Connection, database: Path) -> None:
    """As after a power cut, which wrote a later commit and not an earlier one: SQLite goes back to before the gap."""
    insert(writer, 3)
    with closing(LogReader(database)) as log:
        log.look()
        whole = log.frame
    insert(writer, 3)
    insert(writer, 200)
    path = database.with_name("some.db-wal")
    with path.open("r+b") as file:
        file.seek(HEADER + whole * FRAME + FRAME_HEAD + 100)
        file.write(b"damage")
    with closing(LogReader(database)) as log:
        log.look()
        assert log.frame == whole


def test_a_page_that_is_being_written_does_not_count(writer: sqlite3.Connection, reader: LogReader, database: Path) -> None:
    insert(writer, 1)
    reader.look()
    before = reader.frame
    insert(writer, 1)
    path = database.with_name("some.db-wal")
    content = path.read_bytes()
    path.write_bytes(content[:-2000] + bytes(2000))
    assert not reader.look()
    path.write_bytes(content)
    assert reader.look()
    assert reader.frame > before


def test_what_was_seen_and_is_written_anew_is_noticed(writer: sqlite3.Connection, reader: LogReader, database: Path) -> None:
    insert(writer, 3)
    reader.look()
    path = database.with_name("some.db-wal")
    content = bytearray(path.read_bytes())
    at = HEADER + (reader.frame - 1) * FRAME
    content[at + 16] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogChanged, match="written anew"):
        reader.look()


def test_each_epoch_is_counted_and_a_missed_one_is_noticed(writer: sqlite3.Connection, reader: LogReader) -> None:
    insert(writer, 1)
    reader.look()
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
    insert(writer, 1)
    assert reader.look()
    assert reader.epoch == 1
    for _ in range(2):
        writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        insert(writer, 1)
    with pytest.raises(LogChanged, match="more than once"):
        reader.look()
