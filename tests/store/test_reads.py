"""Reads on both dialects: one state inside a snapshot, statements that take too long, statements that fail inside a write."""

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import peewee
import pytest

from appliance.core.database import db
from appliance.core.errors import TimedOut

pytestmark = pytest.mark.usefixtures("store")
RARE_ROWS = (
    "WITH RECURSIVE counter (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counter) SELECT n FROM counter WHERE n % 1000000000 = 0"
)


def note(text: str) -> int:
    return db.execute("INSERT INTO note VALUES (?)", (text,))


def notes() -> list[str]:
    return [row[0] for row in db.rows("SELECT text FROM note ORDER BY text")]


def test_a_statement_that_takes_too_long_after_its_first_row_is_stopped() -> None:
    with pytest.raises(TimedOut), db.deadline(0.2):
        db.rows(RARE_ROWS)
    assert notes() == []


def test_a_snapshot_shows_one_state_and_ends_with_its_outermost_block() -> None:
    with db.snapshot():
        assert notes() == []
        with db.snapshot():
            db.write(lambda: note("later"))
            assert notes() == []
        assert notes() == []
    assert notes() == ["later"]


def test_a_snapshot_ends_with_an_error() -> None:
    def fail() -> None:
        notes()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), db.snapshot():
        fail()
    db.write(lambda: note("later"))
    assert notes() == ["later"]


def test_threads_that_end_leave_no_connection_open() -> None:
    """Threads come and go, and the next collection of all garbage may be half an hour away."""
    gc.collect()
    gc.disable()
    try:
        run_in_thread(notes)
        before = count_descriptors()
        for _ in range(10):
            run_in_thread(notes)
        assert count_descriptors() == before
    finally:
        gc.enable()


def run_in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_thread_keeps_its_connection_after_a_snapshot() -> None:
    """Opening one takes longer than most reads."""
    reused: list[bool] = []

    def read() -> None:
        with db.snapshot():
            first = db.database.obj.connection()
        with db.snapshot():
            reused.append(db.database.obj.connection() is first)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert reused == [True]


def test_a_write_goes_on_after_a_statement_that_failed() -> None:
    def write() -> None:
        note("first")
        with pytest.raises(peewee.IntegrityError):
            db.try_execute("INSERT INTO note VALUES (?), (?)", ("second", "first"))
        assert db.try_execute("INSERT INTO note VALUES (?)", ("third",)) == 1

    db.write(write)
    assert notes() == ["first", "third"]
