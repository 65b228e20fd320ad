"""What periodic jobs rest on: whether anything was committed, and when the first row is due."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from appliance.core.database import db
from appliance.core.database.changes import earliest, read_state, zero_if_any
from tests.store.opening import open_migrated


@pytest.fixture
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


def insert(priority: int) -> None:
    db.execute("INSERT INTO task (queue, data, priority) VALUES ('other', ?, ?)", (b"", priority))


def test_the_state_changes_with_each_commit_and_stays_the_same_otherwise(database: None) -> None:
    before = read_state()
    assert read_state() == before
    assert db.rows("SELECT COUNT(*) FROM task") == [(0,)]
    assert read_state() == before
    db.write(lambda: insert(1))
    after = read_state()
    assert after != before
    assert read_state() == after
    db.write(lambda: insert(2))
    assert read_state() not in (before, after)


def test_the_state_can_be_read_while_a_write_is_in_progress_and_changes_when_it_commits(database: None) -> None:
    during = []

    def write() -> None:
        insert(1)
        during.append(future.result(30))

    with ThreadPoolExecutor(1) as reader:
        future = reader.submit(read_state)
        db.write(write)
        assert reader.submit(read_state).result(30) != during[0]


def test_the_earliest_of_several_queries(database: None) -> None:
    least = "SELECT MIN(priority) FROM task WHERE priority > ?"
    assert earliest(least, params=(0,)) is None
    assert zero_if_any("SELECT 1 FROM task") is None
    for priority in (7, 5):
        db.write(partial(insert, priority))
    assert earliest(least, params=(0,)) == 5
    assert earliest("SELECT MAX(priority) FROM task", "SELECT MIN(priority) FROM task WHERE priority > 5") == 7
    assert zero_if_any("SELECT 1 FROM task") == 0
