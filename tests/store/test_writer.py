"""The guarantees of `db.write` and its siblings on both dialects."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import peewee
import pytest

from appliance.core.config.sections import Storage
from appliance.core.database import db
from appliance.core.database.postgresql import convert_placeholders
from appliance.core.database.read_pool import MAX_READERS, ReadPool
from appliance.core.errors import Overloaded
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.conftest import on_server


def note(text: str) -> int:
    return db.execute("INSERT INTO note VALUES (?)", (text,))


def fail() -> None:
    note("half")
    raise ValueError("no")


def committed() -> list[str]:
    """What a thread that is not the writer reads."""
    return [row[0] for row in db.rows("SELECT text FROM note ORDER BY text")]


@contextmanager
def shared_commit() -> Iterator[None]:
    """Keeps the writer busy, so that everything submitted inside shares one commit."""
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go_on.wait(10)

    future = db.submit(hold)
    assert started.wait(10)
    try:
        yield
    finally:
        go_on.set()
    future.result(10)


def test_a_write_is_visible_to_others_when_it_is_answered(store: str) -> None:
    assert db.write(lambda: note("one")) == 1
    assert committed() == ["one"]


def test_a_failure_undoes_its_own_function_only(store: str) -> None:
    with shared_commit():
        good, bad, last = db.submit(lambda: note("one")), db.submit(fail), db.submit(lambda: note("two"))
    assert (good.result(10), last.result(10)) == (1, 1)
    with pytest.raises(ValueError, match="no"):
        bad.result(10)
    assert committed() == ["one", "two"]


def test_a_refused_statement_undoes_its_own_function_only(store: str) -> None:
    with shared_commit():
        futures = [db.submit(lambda text=text: note(text)) for text in ("one", "one", "two")]  # type: ignore[misc]
    assert [type(future.exception(10)) for future in futures] == [type(None), peewee.IntegrityError, type(None)]
    with pytest.raises(peewee.IntegrityError):
        db.write(lambda: note("two"))
    assert db.write(lambda: note("three")) == 1
    assert committed() == ["one", "three", "two"]


@on_server
@pytest.mark.parametrize("companions", [0, 2])
def test_a_commit_that_the_server_rolls_back_is_not_a_success(server: str, companions: int) -> None:
    """After a failed statement a server answers COMMIT and rolls back."""

    def pass_over() -> None:
        note("lost")
        with pytest.raises(peewee.IntegrityError):
            note("lost")

    with shared_commit():
        others = [db.submit(lambda text=text: note(text)) for text in "ab"[:companions]]  # type: ignore[misc]
        bad = db.submit(pass_over)
    assert isinstance(bad.exception(10), peewee.InternalError)
    assert [future.result(10) for future in others] == [1] * companions
    assert committed() == list("ab"[:companions])


def test_a_write_inside_a_write_is_part_of_it(store: str) -> None:
    def outer() -> None:
        db.write(lambda: note("inner"))
        assert db.submit(lambda: note("submitted")).result(0) == 1
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        db.write(outer)
    assert committed() == []


def test_savepoints_are_undone_alone_at_every_depth(store: str) -> None:
    def outer() -> None:
        note("kept")
        with db.savepoint():
            note("inside")
            with pytest.raises(peewee.IntegrityError), db.savepoint():
                note("kept")
        with pytest.raises(ValueError, match="no"), db.savepoint():
            fail()
        note("last")

    with shared_commit():
        alone = db.submit(outer)
    alone.result(10)
    assert committed() == ["inside", "kept", "last"]


def test_a_rehearsal_leaves_nothing_of_what_it_did(store: str) -> None:
    done: list[str] = []

    def write() -> None:
        note("before")
        db.after_commit(lambda: done.append("before"))
        with db.rehearsal():
            note("rehearsed")
            db.after_commit(lambda: done.append("rehearsed"))
            db.always_write(lambda: note("always"))
            assert committed() == ["before", "rehearsed"]
        with pytest.raises(ValueError, match="no"), db.rehearsal():
            fail()
        db.after_commit(lambda: done.append("after"))
        note("after")

    db.write(write)
    assert (committed(), done) == (["after", "before"], ["before", "after"])


def test_a_value_that_the_driver_refuses_undoes_its_own_function_only(store: str) -> None:
    """It is refused before anything is sent, not even the savepoint of its function."""

    def refused() -> None:
        with db.savepoint():
            db.rows("SELECT ?, ?", ("a", object()))

    with shared_commit():
        futures: list[Future[Any]] = [db.submit(lambda: note("one")), db.submit(refused), db.submit(lambda: note("two"))]
    assert [type(future.exception(10)) for future in futures][::2] == [type(None)] * 2
    assert "object" in str(futures[1].exception(10))
    assert committed() == ["one", "two"]


@on_server
@pytest.mark.writes_once(reason="counts round trips")
def test_savepoints_cost_no_round_trip(server: str) -> None:
    sent: list[str] = []
    hook = db.database.obj.query_hooks

    def outer() -> None:
        with db.savepoint():
            note("inner")
        with db.savepoint():
            pass
        note("outer")

    hook.append(lambda event: sent.append(event.sql))
    try:
        with shared_commit():
            futures: list[Future[Any]] = [db.submit(outer), db.submit(lambda: note("other"))]
        assert [future.result(10) for future in futures] == [None, 1]
    finally:
        hook.clear()
    assert len(sent) == 4, sent  # three rows, the first of them with the begin, and the commit
    assert committed() == ["inner", "other", "outer"]


@on_server
def test_without_a_free_connection_a_reader_waits_for_a_released_one(server: str) -> None:
    """A server has a limited number of connections; an accepted request must not fail because of it."""
    connections: list[Any] = []
    refused = threading.Event()

    def connect() -> Any:
        if connections:
            refused.set()
            raise Overloaded("too many clients")
        connections.append(db.database.obj.open_connection())
        return connections[0]

    readers = ReadPool(connect)
    first = readers.acquire()
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(readers.acquire)
        assert refused.wait(10)
        readers.release(first)
        assert second.result(10) is first
    readers.release(first)
    readers.shut()
    with pytest.raises(Overloaded, match="too many clients"):
        readers.acquire()


def test_a_callback_runs_after_the_commit_and_only_then(store: str) -> None:
    seen: list[list[Any]] = []

    def good() -> None:
        note("one")
        db.after_commit(lambda: seen.append(committed()))

    def bad() -> None:
        db.after_commit(lambda: seen.append(["never"]))
        raise ValueError("no")

    with shared_commit():
        futures = [db.submit(good), db.submit(bad)]
    futures[0].result(10)
    with pytest.raises(ValueError, match="no"):
        futures[1].result(10)
    assert seen == [["one"]]


def test_readers_cannot_write(store: str) -> None:
    for statement in ("INSERT INTO note VALUES ('x')", "DELETE FROM tenant", "DROP TABLE note"):
        with pytest.raises((peewee.OperationalError, peewee.InternalError), match=r"readonly|read-only"):
            db.execute(statement)
        with pytest.raises((peewee.OperationalError, peewee.InternalError), match=r"readonly|read-only"), db.snapshot():
            db.execute(statement)
    assert committed() == []


def test_a_cancelled_submission_does_not_run(store: str) -> None:
    with shared_commit():
        cancelled = db.submit(lambda: note("never"))
        assert cancelled.cancel()
    assert db.write(lambda: note("one")) == 1
    assert committed() == ["one"]


def test_a_snapshot_sees_one_state(store: str) -> None:
    with db.snapshot():
        before = committed()
        db.write(lambda: note("one"))
        with db.snapshot():
            assert committed() == before
    assert committed() == ["one"]


def test_more_threads_than_connections_read_and_write(store: str) -> None:
    def work(number: int) -> int:
        with db.snapshot():
            before = len(committed())
            db.write(lambda: note(f"{number:03d}"))
            assert len(committed()) == before
        return len(committed())

    count = MAX_READERS * 4
    with ThreadPoolExecutor(MAX_READERS * 2) as threads:
        assert max(threads.map(work, range(count))) == count
    if not db.is_sqlite():
        ((connections,),) = db.rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        assert connections <= MAX_READERS + Storage().writers


def test_placeholders_in_quotes_are_text(store: str) -> None:
    assert db.rows("SELECT 'a?%s%' || ?, 7 % ?, 'it''s?' AS \"why?%\"", ("b%s?", 4)) == [("a?%s%b%s?", 3, "it's?")]
    assert db.rows("SELECT 'a?%'") == [("a?%",)]
    assert convert_placeholders("a = ? AND b LIKE 'x''?%' AND \"?\" % ?") == "a = %s AND b LIKE 'x''?%%' AND \"?\" %% %s"


def test_booleans_are_stored_as_numbers(store: str) -> None:
    values = ("acme", "Acme", "customer", True)
    db.write(lambda: db.execute("INSERT INTO tenant (id, name, kind, created_at) VALUES (?, ?, ?, ?)", values))
    assert db.rows("SELECT created_at FROM tenant WHERE created_at = ?", (True,)) == [(1,)]


COUNTER = """
import sys
from appliance.core.config.sections import Storage
from appliance.core.database import db
db.open_database(sys.argv[1])
def add():
    number = db.rows("SELECT count(*) FROM note")[0][0]
    db.execute("INSERT INTO note VALUES (?)", (f"{number:04d}",))
print("ready", flush=True)
sys.stdin.readline()
for future in [db.submit(add) for _ in range(int(sys.argv[2]))]:
    future.result(30)
for _ in range(20):
    db.write(add)
db.close_database()
"""


def test_writers_of_several_processes_take_turns(store: str) -> None:
    """Each looks before it writes: a number that two of them saw would be refused as a double."""
    command = [sys.executable, "-c", COUNTER, store, "200"]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
    assert [child.returncode for child in children] == [0, 0, 0]
    assert committed() == [f"{number:04d}" for number in range(660)]


@on_server
def test_connections_recover_after_a_server_restart(server: str, cluster: Cluster) -> None:
    db.write(lambda: note("before"))
    assert committed() == ["before"]
    cluster.stop("immediate")
    cluster.start()
    assert committed() == ["before"]
    assert db.write(lambda: note("after")) == 1
    with db.snapshot():
        assert committed() == ["after", "before"]


@on_server
def test_a_server_that_dies_inside_a_write_takes_all_of_it(server: str, cluster: Cluster) -> None:
    def outer() -> None:
        note("lost")
        cluster.stop("immediate")
        note("never")

    with shared_commit():
        futures: list[Future[Any]] = [db.submit(lambda: note("companion")), db.submit(outer)]
    assert all(isinstance(future.exception(30), Overloaded) for future in futures)
    for ask in (lambda: db.write(lambda: note("nobody there")), committed):
        with pytest.raises(Overloaded, match="does not respond"):
            ask()
    cluster.start()
    assert db.write(lambda: note("after")) == 1
    assert committed() == ["after"]


@on_server
def test_a_reader_that_outlives_the_database_leaves_no_session(server: str, cluster: Cluster) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read() -> None:
        with db.snapshot():
            committed()
            reading.set()
            assert go_on.wait(20)

    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(read)
        assert reading.wait(20)
        db.close_database()
        go_on.set()
        late.result(20)
    wait_until(lambda: cluster.execute("SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'test_%'") == [(0,)])
