"""The writer: durable answers, shared commits, failures that stay with their own function."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peewee
import pytest

from appliance.core.database import db, sqlite
from appliance.core.errors import StorageFull
from tests.core.conftest import committed, note
from tests.syncing import ORIGINAL_PRAGMAS


@contextmanager
def one_commit() -> Iterator[None]:
    """Keeps the writer busy, so that everything submitted inside shares one commit."""
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go_on.wait(10)

    blocked = db.submit(hold)
    assert started.wait(10)
    try:
        yield
    finally:
        go_on.set()
    blocked.result(10)


def fail() -> None:
    note("half")
    raise ValueError("no")


def test_a_write_is_answered_after_its_commit(database: Path) -> None:
    assert db.write(lambda: note("one")) == 1
    assert committed(database) == ["one"]


@pytest.mark.writes_once(reason="the function notes what it sees")
def test_functions_that_wait_together_share_a_commit(database: Path) -> None:
    seen: list[tuple[list[Any], int]] = []

    def look() -> None:
        seen.append((committed(database), len(db.rows("SELECT 1 FROM note"))))

    with one_commit():
        futures: list[Future[Any]] = [db.submit(lambda: note("one")), db.submit(look), db.submit(lambda: note("two"))]
    for future in futures:
        future.result(10)
    assert seen == [([], 1)]
    assert committed(database) == ["one", "two"]


def test_a_failure_undoes_its_own_function_only(database: Path) -> None:
    with one_commit():
        good, bad, last = db.submit(lambda: note("one")), db.submit(fail), db.submit(lambda: note("two"))
    assert (good.result(10), last.result(10)) == (1, 1)
    with pytest.raises(ValueError, match="no"):
        bad.result(10)
    assert committed(database) == ["one", "two"]


def test_a_failure_alone_leaves_nothing(database: Path) -> None:
    with pytest.raises(ValueError, match="no"):
        db.write(fail)
    assert committed(database) == []
    assert db.write(lambda: note("one")) == 1


def test_many_threads_lose_nothing(database: Path) -> None:
    def work(number: int) -> None:
        if number % 10 == 0:
            with pytest.raises(ValueError, match="no"):
                db.write(fail)
        else:
            db.write(lambda: note(f"{number:03d}"))

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(work, range(300)))
    assert sorted(committed(database)) == [f"{n:03d}" for n in range(300) if n % 10]


def test_a_write_inside_a_write_is_part_of_it(database: Path) -> None:
    def outer() -> None:
        db.write(lambda: note("inner"))
        assert db.submit(lambda: note("submitted")).result(0) == 1
        assert committed(database) == []
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        db.write(outer)
    assert committed(database) == []


def test_a_savepoint_is_undone_alone(database: Path) -> None:
    def outer() -> None:
        note("kept")
        with pytest.raises(ValueError, match="no"), db.savepoint():
            fail()
        note("also kept")

    db.write(outer)
    assert committed(database) == ["kept", "also kept"]


def test_a_callback_runs_after_the_commit_and_only_then(database: Path) -> None:
    seen: list[list[Any]] = []

    def good() -> None:
        note("one")
        db.after_commit(lambda: seen.append(committed(database)))

    def bad() -> None:
        db.after_commit(lambda: seen.append(["never"]))
        raise ValueError("no")

    with one_commit():
        futures = [db.submit(good), db.submit(bad)]
    futures[0].result(10)
    with pytest.raises(ValueError, match="no"):
        futures[1].result(10)
    assert seen == [["one"]]


def test_a_broken_callback_does_not_hide_the_result(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    def good() -> int:
        db.after_commit(fail_callback)
        return note("one")

    def fail_callback() -> None:
        raise RuntimeError("broken callback")

    assert db.write(good) == 1
    assert "a callback after a commit failed" in caplog.text


def test_a_callback_needs_a_write(database: Path) -> None:
    for verb in (db.after_commit, db.always_write):
        with pytest.raises(RuntimeError, match=r"db\.write"):
            verb(lambda: None)


def refuse() -> None:
    note("undone")
    db.always_write(lambda: note("refused"))
    raise ValueError("no")


def test_always_write_survives_a_rollback(database: Path) -> None:
    with pytest.raises(ValueError, match="no"):
        db.write(refuse)
    assert committed(database) == ["refused"]
    with one_commit():
        good, bad = db.submit(lambda: note("one")), db.submit(refuse)
    with pytest.raises(ValueError, match="no"):
        bad.result(10)
    assert good.result(10) == 1
    assert committed(database) == ["refused", "one", "refused"]


def test_always_write_comes_last_in_a_successful_write(database: Path) -> None:
    def outer() -> None:
        with pytest.raises(ValueError, match="no"), db.savepoint():
            refuse()
        note("one")

    db.write(outer)
    assert committed(database) == ["one", "refused"]


def test_a_failed_always_write_is_logged(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("broken entry")

    def outer() -> None:
        note("undone")
        db.always_write(broken)

    with pytest.raises(RuntimeError, match="broken entry"):
        db.write(outer)
    assert committed(database) == []
    assert "was lost" in caplog.text
    assert db.write(lambda: note("one")) == 1


def test_readers_cannot_write(database: Path) -> None:
    for statement in ("INSERT INTO note VALUES ('x')", "DELETE FROM tenant", "DROP TABLE note"):
        with pytest.raises(peewee.OperationalError, match="readonly"):
            db.execute(statement)
    assert committed(database) == []


def test_a_cancelled_submission_does_not_run(database: Path) -> None:
    with one_commit():
        cancelled = db.submit(lambda: note("never"))
        assert cancelled.cancel()
        good = db.submit(lambda: note("one"))
    assert good.result(10) == 1
    assert committed(database) == ["one"]


@pytest.fixture
def product_pragmas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of this test are made as the appliance makes them."""
    monkeypatch.setattr(sqlite, "_PRAGMAS", ORIGINAL_PRAGMAS)


def test_a_commit_is_on_disk_before_it_is_answered(product_pragmas: None, database: Path) -> None:
    assert db.write(lambda: db.rows("PRAGMA synchronous")) == [(2,)]
    assert db.rows("PRAGMA journal_mode") == [("wal",)]
    assert db.rows("PRAGMA foreign_keys") == [(1,)]


@contextmanager
def full_disk() -> Iterator[None]:
    """The writer's connection may not make the file larger."""
    pages = db.rows("PRAGMA page_count")[0][0]
    db.write(lambda: db.rows(f"PRAGMA max_page_count={pages}"))
    try:
        yield
    finally:
        db.submit(lambda: db.rows("PRAGMA max_page_count=1000000")).result(10)


def fill() -> None:
    for _ in range(100):
        note("x" * 100_000)


def test_a_full_disk_is_a_temporary_coded_error(database: Path) -> None:
    db.write(lambda: note("before"))
    with full_disk():
        with pytest.raises(StorageFull, match="free space"):
            db.write(fill)
        assert [row[0] for row in db.rows("SELECT text FROM note")] == ["before"]
    db.write(lambda: note("after"))
    assert committed(database) == ["before", "after"]


def test_a_full_disk_reports_no_false_success(database: Path) -> None:
    outcomes: list[str] = []

    def finished(text: str, future: Any) -> None:
        if future.exception(10) is None:
            outcomes.append(text)
        else:
            assert isinstance(future.exception(), StorageFull)

    with full_disk():
        jobs: list[tuple[str, Callable[[], Any]]] = [("one", lambda: note("one")), ("fill", fill), ("two", lambda: note("two"))]
        with one_commit():
            futures = [(text, db.submit(job)) for text, job in jobs]
        for text, future in futures:
            finished(text, future)
    assert committed(database) == outcomes


def test_a_snapshot_sees_one_state(database: Path) -> None:
    with db.snapshot():
        before = db.rows("SELECT count(*) FROM note")
        db.write(lambda: note("one"))
        assert db.rows("SELECT count(*) FROM note") == before
    assert db.rows("SELECT count(*) FROM note") == [(1,)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_json_that_no_reader_accepts_is_not_stored(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        db.dump_json(value)
