"""Several writers of a server: shared functions run side by side, and what an exclusive one relies on holds nevertheless."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import peewee
import psycopg
import pytest

from appliance.core.database import db, writers
from appliance.core.database.advisory_locks import lock_statement
from appliance.core.errors import Conflict, Overloaded
from tests.processes.world import wait_until
from tests.store.cluster import Cluster

WRITERS = 4


@pytest.fixture
def server(cluster: Cluster) -> Iterator[str]:
    """The URL of an open database with the table `note`, which several writers change side by side."""
    url = str(cluster.emptied())
    db.open_database(url, WRITERS)
    db.write(lambda: db.execute("CREATE TABLE note (text TEXT NOT NULL UNIQUE, number INTEGER NOT NULL DEFAULT 0)"))
    yield url
    db.close_database()


def note(text: str) -> int:
    return db.execute("INSERT INTO note (text) VALUES (?)", (text,))


def texts() -> list[str]:
    return [row[0] for row in db.rows("SELECT text FROM note ORDER BY text")]


class Meeting:
    """Lets the first attempts of several functions wait for each other, so that they certainly run side by side."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties)
        self._met = threading.local()
        self.attempts: list[int] = []

    def meet(self, party: int) -> None:
        self.attempts.append(party)
        if self.attempts.count(party) == 1:
            self._barrier.wait(20)


def all_at_once(*functions: Callable[[], Any]) -> list[Any]:
    """The results or errors of shared functions."""
    futures = [db.submit(each, is_shared=True) for each in functions]
    return [future.exception(30) or future.result() for future in futures]


def test_two_functions_are_inside_at_the_same_time(server: str) -> None:
    meeting = Meeting(2)

    def insert(party: int) -> None:
        meeting.meet(party)
        note(str(party))

    assert all_at_once(lambda: insert(1), lambda: insert(2)) == [None, None]
    assert texts() == ["1", "2"]
    assert sorted(meeting.attempts) == [1, 2]


def test_who_looks_before_it_changes_must_say_so(server: str) -> None:
    """At most one note: each sees none, both write."""
    meeting = Meeting(2)

    def insert(party: int) -> None:
        before = texts()
        meeting.meet(party)
        if not before:
            note(str(party))

    all_at_once(lambda: insert(1), lambda: insert(2))
    assert texts() == ["1", "2"]


def test_an_exclusive_part_makes_the_whole_write_exclusive(server: str) -> None:
    """The same with a function that comes to look inside another: the second sees what the first has done."""
    meeting, seen = Meeting(2), []

    def look() -> None:
        seen.append(texts())
        if not seen[-1]:
            note("first")

    def insert(party: int) -> None:
        meeting.meet(party)
        try:
            db.write(look)
        except Exception as error:  # noqa: BLE001  whoever handles failures must not see that it runs again
            seen.append([str(error)])
        note(str(party))

    assert all_at_once(lambda: insert(1), lambda: insert(2)) == [None, None]
    assert texts() == ["1", "2", "first"]
    assert seen[0] == []
    assert "first" in seen[1]
    assert len(meeting.attempts) == 4


def test_nothing_is_written_beside_an_exclusive_function(server: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> list[str]:
        before = texts()
        inside.set()
        assert go_on.wait(20)
        assert texts() == before
        return before

    first = db.submit(hold)
    assert inside.wait(20)
    others = [db.submit(lambda: note("shared"), is_shared=True), db.submit(lambda: note("exclusive"))]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    wait_until(lambda: db.rows(waiting) == [(1,)])  # the shared one; the exclusive one has not begun
    go_on.set()
    assert first.result(20) == []
    assert [other.result(20) for other in others] == [1, 1]


def test_exclusive_functions_share_a_commit(server: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert go_on.wait(20)

    def transaction(text: str) -> str:
        note(text)
        return str(db.rows("SELECT pg_current_xact_id()")[0][0])

    db.submit(hold)
    assert inside.wait(20)
    futures = [db.submit(lambda text=text: transaction(text)) for text in "abc"]  # type: ignore[misc]
    go_on.set()
    assert len({future.result(20) for future in futures}) == 1


NUMBERED = "INSERT INTO note SELECT ?, count(*) FROM note"


def test_followed_numbers_become_visible_in_order(server: str) -> None:
    """Who reads on from the last number that it has seen must not miss a smaller one, of a commit that took longer."""
    inside, go_on = threading.Event(), threading.Event()

    def add_slowly() -> None:
        db.insert_followed("note", NUMBERED, ("slow",))
        inside.set()
        assert go_on.wait(20)

    slow = db.submit(add_slowly, is_shared=True)
    assert inside.wait(20)
    db.submit(lambda: db.insert_followed("note", NUMBERED, ("fast",)), is_shared=True).result(20)
    before = texts()
    go_on.set()
    slow.result(20)
    assert before == ["fast"], "it does not wait for those that have not come to their commit"
    assert db.rows("SELECT text, number FROM note ORDER BY number") == [("fast", 0), ("slow", 1)]


def test_followed_rows_wait_for_the_commit_of_others(server: str) -> None:
    """One connection takes the lock of the table, as a commit does that lasts; a shared and an exclusive write follow it."""
    with psycopg.connect(server) as other:
        other.execute(lock_statement("note"))
        other.execute("INSERT INTO note VALUES ('first', 0)")
        later = db.submit(lambda: db.insert_followed("note", NUMBERED, ("second",)), is_shared=True)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: later.done() or db.rows(waiting) == [(1,)])
        assert texts() == []
    later.result(20)
    assert db.rows("SELECT text, number FROM note ORDER BY number") == [("first", 0), ("second", 1)]


def test_followed_rows_are_rolled_back_with_their_savepoint(server: str) -> None:
    def add() -> None:
        db.insert_followed("note", NUMBERED, ("before",))
        with suppress(ValueError), db.savepoint():
            db.insert_followed("note", NUMBERED, ("inside",))
            raise ValueError
        db.insert_followed("note", NUMBERED, ("100 % after",))

    db.write(add, is_shared=True)
    assert texts() == ["100 % after", "before"]


def test_followed_rows_that_cannot_be_inserted_roll_back_everything(server: str) -> None:
    db.write(lambda: note("a"))

    def add() -> None:
        note("b")
        db.insert_followed("note", NUMBERED, ("a",))

    with pytest.raises(peewee.IntegrityError):
        db.write(add, is_shared=True)
    assert texts() == ["a"]


def test_two_take_different_rows_without_waiting(server: str) -> None:
    db.write(lambda: [note("first"), note("second")])
    meeting, claimed = Meeting(2), dict.fromkeys((1, 2), "")

    def take(party: int) -> None:
        ((claimed[party],),) = db.rows(f"SELECT text FROM note ORDER BY text LIMIT 1{db.skip_locked()}")  # noqa: S608
        meeting.meet(party)

    assert all_at_once(lambda: take(1), lambda: take(2)) == [None, None]
    assert sorted(claimed.values()) == ["first", "second"]


def test_no_increment_is_lost(server: str) -> None:
    db.write(lambda: note("counter"))

    def add_looking() -> None:
        ((number,),) = db.rows("SELECT number FROM note")
        db.execute("UPDATE note SET number = ?", (number + 1,))

    def add_locking() -> None:
        ((number,),) = db.rows(f"SELECT number FROM note{db.row_lock()}")  # noqa: S608
        db.execute("UPDATE note SET number = ?", (number + 1,))

    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(db.write, add_looking) for _ in range(100)]
        done += [threads.submit(lambda: db.write(add_locking, is_shared=True)) for _ in range(100)]
        for each in done:
            each.result(60)
    assert db.rows("SELECT number FROM note") == [(200,)]


def test_what_follows_from_a_failed_attempt_is_forgotten(server: str) -> None:
    db.write(lambda: note("one"))
    attempts: list[str] = []
    numbers: list[int] = []

    def insert() -> None:
        number = len(attempts)
        attempts.append("")
        db.after_commit(lambda: numbers.append(number))
        db.always_write(lambda: note(f"lasting {number}"))
        note(f"attempt {number}")
        db.require_exclusive()

    db.write(insert, is_shared=True)
    assert numbers == [1]
    assert texts() == ["attempt 1", "lasting 1", "one"]


def test_a_deadlock_is_resolved(server: str) -> None:
    db.write(lambda: [note("a"), note("b")])
    meeting = Meeting(2)

    def change(party: int, *names: str) -> None:
        for name in names:
            db.execute("UPDATE note SET number = number + 1 WHERE text = ?", (name,))
            if name == names[0]:
                meeting.meet(party)

    assert all_at_once(lambda: change(1, "a", "b"), lambda: change(2, "b", "a")) == [None, None]
    assert db.rows("SELECT number FROM note") == [(2,), (2,)]
    assert len(meeting.attempts) >= 3, "of two that wait for each other, one runs again, and may meet the other once more"


def test_a_function_that_passes_over_the_deadlock_runs_again_nevertheless(server: str) -> None:
    db.write(lambda: [note("a"), note("b")])
    meeting = Meeting(2)

    def change(party: int, first: str, second: str) -> None:
        db.execute("UPDATE note SET number = number + 1 WHERE text = ?", (first,))
        meeting.meet(party)
        try:
            db.execute("UPDATE note SET number = number + 1 WHERE text = ?", (second,))
        except peewee.OperationalError as error:
            raise Conflict("taken for something else") from error

    assert all_at_once(lambda: change(1, "a", "b"), lambda: change(2, "b", "a")) == [None, None]
    assert db.rows("SELECT number FROM note") == [(2,), (2,)]


def send_note(text: str) -> None:
    db.send("INSERT INTO note (text) VALUES (?)", (text,))


@pytest.mark.parametrize("insert_note", [note, send_note])
def test_a_violated_constraint_is_looked_at_once_more(server: str, insert_note: Callable[[str], Any]) -> None:
    """The row that is in the way may be newer than what the function has seen, also if it is sent with the commit."""
    attempts: list[list[str]] = []

    def insert() -> str:
        attempts.append(texts())
        if attempts[-1]:
            return "found"
        if len(attempts) == 1:
            with psycopg.connect(server) as other:
                other.execute("INSERT INTO note (text) VALUES ('one')")
        insert_note("one")
        return "inserted"

    def insert_again() -> None:
        db.after_commit(lambda: called.append("after the commit"))
        db.always_write(lambda: insert_note("in any case"))
        insert_note("one")

    called: list[str] = []
    assert db.write(insert, is_shared=True) == "found"
    assert attempts == [[], ["one"]]
    with pytest.raises(peewee.IntegrityError):
        db.write(insert_again, is_shared=True)
    assert (called, texts()) == ([], ["in any case", "one"])


def test_a_lost_connection_repeats_the_function(server: str, cluster: Cluster) -> None:
    attempts: list[int] = []

    def insert() -> None:
        ((session,),) = db.rows("SELECT pg_backend_pid()")
        attempts.append(session)
        note(str(len(attempts)))
        if len(attempts) == 1:
            cluster.execute(f"SELECT pg_terminate_backend({session}, 5000)")
        note("last")

    db.write(insert)
    assert texts() == ["2", "last"]


def test_a_commit_of_which_nobody_knows_is_not_repeated(server: str, cluster: Cluster) -> None:
    attempts: list[int] = []

    def insert() -> None:
        ((session,),) = db.rows("SELECT pg_backend_pid()")
        attempts.append(session)
        note(str(len(attempts)))
        cluster.execute(f"SELECT pg_terminate_backend({session}, 5000)")

    with pytest.raises(peewee.OperationalError):
        db.write(insert)
    assert len(attempts) == 1
    assert db.write(lambda: note("after")) == 1


def test_after_many_deadlocks_the_caller_is_told(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MOST_ATTEMPTS", 4)
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(1)
        db.execute("DO $$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = 'deadlock_detected'; END $$")

    with pytest.raises(Overloaded, match="at once"):
        db.write(fail, is_shared=True)
    assert len(attempts) == 4


def test_many_functions_share_a_few_connections(server: str) -> None:
    def insert(text: str) -> int:
        note(text)
        return int(db.rows("SELECT pg_backend_pid()")[0][0])

    futures = [db.submit(lambda text=f"{number:03d}": insert(text), is_shared=True) for number in range(100)]  # type: ignore[misc]
    assert len({future.result(60) for future in futures}) <= WRITERS
    assert len(texts()) == 100
