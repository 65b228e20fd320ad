"""The check that `--repeat-writes` makes; `tests/api/test_repeated_writes.py` makes it for every changing route."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.database import db
from tests.repeated_writes import check_repeatable, repeated
from tests.store.opening import migrated


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[None]:
    """A database with a table."""
    with migrated(f"sqlite:///{tmp_path}/gos.db"):
        db.write(lambda: db.execute("CREATE TABLE note (text TEXT NOT NULL)"))
        yield


def _note(text: str) -> int:
    return db.execute("INSERT INTO note VALUES (?)", (text,))


def _take(values: list[str]) -> str:
    if not values:
        raise LookupError("none is left")
    return values.pop()


@pytest.mark.writes_once(reason="repeats by itself")
def test_a_repeated_write_is_run_twice_and_stored_once(notes: None) -> None:
    runs: list[str] = []
    callbacks: list[str] = []

    def write() -> int:
        runs.append("run")
        db.after_commit(lambda: callbacks.append("called"))
        return _note("one")

    with repeated():
        assert db.write(write) == 1
    assert (runs, callbacks) == (["run", "run"], ["called"])
    assert db.rows("SELECT text FROM note") == [("one",)]


@pytest.mark.writes_once(reason="repeats by itself")
def test_a_write_that_fails_is_repeatable(notes: None) -> None:
    def fail() -> None:
        _note("half")
        db.always_write(lambda: _note("always"))
        raise ValueError("no")

    with repeated(), pytest.raises(ValueError, match="no"):
        db.write(fail)
    assert db.rows("SELECT text FROM note") == [("always",)]


@pytest.mark.writes_once(reason="repeats by itself")
def test_a_write_that_consumes_a_captured_list_is_not_repeatable(notes: None) -> None:
    texts = ["one"]
    with pytest.raises(pytest.fail.Exception, match=r"lambda> came first to 'INSERT INTO note .*, then to 'its end"), repeated():
        db.write(lambda: _note(texts.pop()) if texts else 0)
    check_repeatable()  # What was reported is not reported again.


@pytest.mark.writes_once(reason="repeats by itself")
def test_a_write_that_ends_otherwise_is_not_repeatable(notes: None) -> None:
    values = ["one"]
    message = "came first to 'its end with no error and 0 callbacks', then to 'its end with LookupError"
    with pytest.raises(pytest.fail.Exception, match=message), repeated(), pytest.raises(LookupError):
        db.write(lambda: _take(values))
