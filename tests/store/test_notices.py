"""Notices reach the subscribers of every process after the commit, and what may have been lost is reported."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from appliance.core.database import db
from appliance.core.database.notices import MAX_BYTES, Notices
from tests.store.conftest import on_server

SECONDS = 30.0


class Inbox:
    """A listener that remembers its payloads."""

    def __init__(self) -> None:
        self.payloads: list[str | None] = []
        self._arrived = threading.Condition()

    def __call__(self, payload: str | None) -> None:
        with self._arrived:
            self.payloads.append(payload)
            self._arrived.notify_all()

    def wait_for(self, payload: str | None, count: int = 1) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.payloads.count(payload) >= count, SECONDS), self.payloads


@contextmanager
def process(topic: str = "row") -> Iterator[tuple[Notices, Inbox]]:
    """The notices of a process, connected, and what its subscriber has received since."""
    notices, inbox = Notices(), Inbox()
    notices.subscribe(topic, inbox)
    notices.start()
    try:
        if not db.is_sqlite():
            inbox.wait_for(None)  # it has begun to listen
            inbox.payloads.clear()
        yield notices, inbox
    finally:
        notices.stop()


@pytest.fixture
def two(store: str) -> Iterator[tuple[tuple[Notices, Inbox], tuple[Notices, Inbox]]]:
    with process() as first, process() as second:
        yield first, second


def test_this_process_is_notified_before_the_write_returns(store: str) -> None:
    with process() as (notices, inbox):
        db.write(lambda: notices.notify("row", "1"))
        assert inbox.payloads == ["1"]


def test_a_write_that_fails_notifies_nobody(store: str) -> None:
    with process() as (notices, inbox):

        def fail() -> None:
            notices.notify("row", "never")
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            db.write(fail)
        db.write(lambda: notices.notify("row", "1"))
        assert inbox.payloads == ["1"]


def test_a_listener_that_fails_stops_no_other_one_and_one_that_has_left_is_not_called(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    notices, inbox, former = Notices(), Inbox(), Inbox()

    def fail(_: str | None) -> None:
        raise RuntimeError("no")

    notices.subscribe("row", fail)
    leave = notices.subscribe("row", former)
    notices.subscribe("row", inbox)
    leave()
    db.write(lambda: notices.notify("row", "1"))
    assert (inbox.payloads, former.payloads) == (["1"], [])
    assert "a listener for notices of row failed" in caplog.text


@on_server
def test_other_processes_are_notified_after_the_commit_and_each_once(
    server: str, two: tuple[tuple[Notices, Inbox], tuple[Notices, Inbox]]
) -> None:
    (notices, own), (_, other) = two
    db.write(lambda: notices.notify("row", "one: with a colon"))
    other.wait_for("one: with a colon")
    db.write(lambda: notices.notify("row", "two"))
    other.wait_for("two")
    assert own.payloads == other.payloads == ["one: with a colon", "two"]


@on_server
def test_notify_others_leaves_this_process_out(server: str, two: tuple[tuple[Notices, Inbox], tuple[Notices, Inbox]]) -> None:
    (notices, own), (back, other) = two
    notices.notify_others("row", "one")
    other.wait_for("one")
    back.notify_others("row", "back")  # travels the same way, so what was sent before would have arrived
    own.wait_for("back")
    assert own.payloads == ["back"]


@on_server
def test_thousands_at_once_all_arrive(server: str, two: tuple[tuple[Notices, Inbox], tuple[Notices, Inbox]]) -> None:
    (notices, _), (_, other) = two
    sent = [str(number) for number in range(3000)]
    for payload in sent:
        notices.notify_others("row", payload)
    other.wait_for(sent[-1])
    assert other.payloads == sent


@on_server
def test_what_was_committed_before_the_stop_is_still_sent(server: str) -> None:
    with process() as (_, other):
        with process() as (notices, _):
            notices.notify_others("row", "last")
        other.wait_for("last")


@on_server
def test_after_a_lost_connection_everything_counts_as_changed_and_notices_go_on(
    server: str, two: tuple[tuple[Notices, Inbox], tuple[Notices, Inbox]]
) -> None:
    (notices, _), (_, other) = two
    ended = db.rows(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND (query LIKE '%LISTEN%' OR query LIKE '%pg_notify%') AND pid <> pg_backend_pid()"
    )
    assert len(ended) == 2
    other.wait_for(None, 2)  # the loss, and the new connection
    notices.notify_others("row", "after")
    other.wait_for("after")


@on_server
def test_a_payload_is_the_id_of_a_row_and_no_document(
    server: str, two: tuple[tuple[Notices, Inbox], tuple[Notices, Inbox]]
) -> None:
    (notices, _), _ = two
    with pytest.raises(ValueError, match="send the id of a row"):
        notices.notify_others("row", "x" * MAX_BYTES)
