"""Changes of a server that need no answer travel with the next statement, and are rolled back where they belong."""

from contextlib import suppress
from functools import partial

import pytest
from peewee import IntegrityError

from appliance.core.database import db
from appliance.core.database.losses import ConnectionLost
from appliance.core.database.unsent import MOST_CHANGES
from tests.store.cluster import Cluster
from tests.store.conftest import on_server
from tests.store.test_writer import committed, note, shared_commit


def send_note(text: str) -> None:
    db.send("INSERT INTO note VALUES (?)", (text,))


@on_server
@pytest.mark.writes_once(reason="counts round trips")
def test_changes_that_need_no_answer_cost_no_round_trip(server: str) -> None:
    sent: list[str] = []
    hook = db.database.obj.query_hooks

    def change() -> list[str]:
        send_note("first")
        with db.savepoint():
            send_note("second, 100 %")
        with suppress(ValueError), db.savepoint():
            send_note("undone")
            raise ValueError
        before = committed()
        with suppress(ValueError), db.savepoint():
            send_note("undone, too")
            note("undone as well")
            raise ValueError
        send_note("last")
        return before

    def change_without_parameters() -> None:
        db.send("INSERT INTO note VALUES ('no parameters')")
        with suppress(ValueError), db.savepoint():
            raise ValueError

    hook.append(lambda event: sent.append(event.sql))
    try:
        assert db.write(change, is_shared=True) == ["first", "second, 100 %"]
    finally:
        hook.clear()
    assert len(sent) == 4, sent  # the query, the row in the savepoint, its end, and the commit
    db.write(change_without_parameters, is_shared=True)
    assert committed() == ["first", "last", "no parameters", "second, 100 %"]


@on_server
@pytest.mark.writes_once(reason="ends its own connection")
def test_a_connection_lost_during_a_commit_leaves_the_outcome_unknown(server: str) -> None:
    with pytest.raises(ConnectionLost) as lost:
        db.write(lambda: db.send("SELECT pg_terminate_backend(pg_backend_pid())"), is_shared=True)
    assert lost.value.coded().code == "outcome_unknown"
    db.write(lambda: note("on a new connection"))
    assert committed() == ["on a new connection"]


@on_server
def test_a_read_that_loses_two_connections_is_to_repeat(server: str) -> None:
    with pytest.raises(ConnectionLost) as lost:
        db.rows("SELECT pg_terminate_backend(pg_backend_pid())")  # it is repeated once by itself
    assert lost.value.coded().code == "overloaded"
    assert committed() == []


@on_server
def test_a_connection_lost_before_a_deadline_is_a_read_to_repeat(server: str, cluster: Cluster) -> None:
    ((session,),) = db.rows("SELECT pg_backend_pid()")
    cluster.execute(f"SELECT pg_terminate_backend({session}, 5000)")
    with pytest.raises(ConnectionLost), db.deadline(10.0):
        db.rows("SELECT 1")
    with db.deadline(10.0):
        assert db.rows("SELECT 1") == [(1,)]


@on_server
def test_a_connection_lost_within_a_deadline_is_no_timeout(server: str) -> None:
    with pytest.raises(ConnectionLost), db.deadline(10.0), db.snapshot():
        db.rows("SELECT pg_terminate_backend(pg_backend_pid())")


@on_server
def test_a_connection_lost_in_a_snapshot_is_a_read_to_repeat(server: str) -> None:
    with pytest.raises(ConnectionLost) as lost, db.snapshot():
        db.rows("SELECT pg_terminate_backend(pg_backend_pid())")
    assert lost.value.coded().code == "overloaded"
    assert committed() == []


@on_server
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_change_that_is_refused_fails_its_own_write_only(server: str, is_shared: bool) -> None:
    db.write(lambda: note("there"))
    with shared_commit():
        futures = [db.submit(partial(send_note, text), is_shared=is_shared) for text in ("a", "there", "b")]
    errors = [type(future.exception(10)).__name__ for future in futures]
    assert errors == ["NoneType", "IntegrityError", "NoneType"]
    assert committed() == ["a", "b", "there"]


@on_server
@pytest.mark.writes_once(reason="counts round trips")
def test_many_changes_are_sent_in_parts(server: str) -> None:
    sent: list[str] = []
    hook = db.database.obj.query_hooks

    def send_many() -> None:
        for number in range(MOST_CHANGES * 3 + 1):
            send_note(f"{number:03}")

    hook.append(lambda event: sent.append(event.sql))
    try:
        db.write(send_many)
    finally:
        hook.clear()
    assert len(sent) == 4
    assert len(committed()) == MOST_CHANGES * 3 + 1


def look_ahead_at(text: str) -> None:
    db.look_ahead(NOTES, (text,))


def notes_like(text: str) -> list[str]:
    return [row[0] for row in db.rows(NOTES, (text,))]


NOTES = "SELECT text FROM note WHERE text LIKE ? ORDER BY text"


@on_server
@pytest.mark.writes_once(reason="counts round trips")
def test_a_query_that_was_announced_costs_no_round_trip(server: str) -> None:
    sent: list[str] = []
    hook = db.database.obj.query_hooks
    for text in ("a1", "a2", "b1"):
        db.write(partial(note, text))

    def change() -> list[list[str]]:
        send_note("sent before")
        look_ahead_at("a%")
        look_ahead_at("b%")
        look_ahead_at("nobody asks for this")
        return [committed(), notes_like("b%"), notes_like("a%"), notes_like("a%")]

    hook.append(lambda event: sent.append(event.sql))
    try:
        rows = db.write(change, is_shared=True)
    finally:
        hook.clear()
    assert rows == [["a1", "a2", "b1", "sent before"], ["b1"], ["a1", "a2"], ["a1", "a2"]]
    assert len(sent) == 3, sent  # the first query with those announced, the repeated one, and the commit


def test_an_announced_query_has_the_rows_of_its_write(store: str) -> None:
    def change(text: str) -> list[str]:
        look_ahead_at("x%")
        committed()
        with db.savepoint():
            note(f"x{text}")
        return notes_like("x%")

    def fail() -> None:
        look_ahead_at("x%")
        committed()
        raise ValueError

    assert db.write(lambda: change("1"), is_shared=True) == ["x1"]
    with shared_commit():
        futures = [db.submit(partial(change, text)) for text in ("2", "3")]
        failed = db.submit(fail)
        last = db.submit(lambda: notes_like("x%"))
    assert [future.result(10) for future in futures] == [["x1", "x2"], ["x1", "x2", "x3"]]
    assert isinstance(failed.exception(10), ValueError)
    assert last.result(10) == ["x1", "x2", "x3"]
    db.write(lambda: look_ahead_at("x%"))  # not used, so not sent
    assert db.write(lambda: change("4")) == ["x1", "x2", "x3", "x4"]


def test_a_query_announced_before_a_refused_change_is_forgotten(store: str) -> None:
    def change() -> None:
        look_ahead_at("x%")
        note("there")

    db.write(lambda: note("there"))
    with pytest.raises(IntegrityError):
        db.write(change)
    assert db.write(lambda: [note("x1"), notes_like("x%")][-1]) == ["x1"]
