"""A request's writes are refused by its guard, in whichever thread they are, and nothing of them is left."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import psycopg
import pytest

from appliance.core.database import db
from appliance.core.database.write_guards import GuardedRequest, WriteGuard, carry, guard_request, guarding
from appliance.core.errors import Overloaded
from appliance.core.request_pools import open_request_pool
from tests.processes.world import wait_until
from tests.store.conftest import on_server

CLOSED = WriteGuard("SELECT 1 FROM note WHERE text = ?", ("closed",), lambda: Overloaded("it is closed"))


def add(text: str) -> None:
    db.execute("INSERT INTO note (text) VALUES (?)", (text,))


def notes() -> list[str]:
    return sorted(str(text) for (text,) in db.rows("SELECT text FROM note"))


@pytest.mark.parametrize("is_shared", [False, True])
def test_writes_are_refused_from_when_the_guard_says_so(store: str, *, is_shared: bool) -> None:
    called: list[str] = []

    def add_and_tell(text: str) -> None:
        add(text)
        db.after_commit(partial(called.append, text))

    with guarding(GuardedRequest(CLOSED)):
        db.write(partial(add_and_tell, "early"), is_shared=is_shared)
    db.write(partial(add, "closed"))
    with guarding(GuardedRequest(CLOSED)):
        for write in (db.write, lambda fn, **how: db.submit(fn, **how).result()):
            with pytest.raises(Overloaded, match="it is closed"):
                write(partial(add_and_tell, "late"), is_shared=is_shared)
        with pytest.raises(Overloaded, match="it is closed"):
            db.write(partial(_send, "late"), is_shared=is_shared)
    db.write(partial(add_and_tell, "outside"), is_shared=is_shared)
    assert (notes(), called) == (["closed", "early", "outside"], ["early", "outside"])


def _send(text: str) -> None:
    with db.savepoint():
        db.send("INSERT INTO note (text) VALUES (?)", (text,))


def test_the_work_of_a_request_has_its_guard_in_every_thread(store: str) -> None:
    """One that is set later, too; a thread that goes on with other work has it no more."""
    db.write(partial(add, "closed"))
    threads, request = open_request_pool(more=0), GuardedRequest()
    try:
        with guarding(request):
            threads.submit(db.write, partial(add, "before")).result()
            threads.submit(guard_request, CLOSED).result()
            with pytest.raises(Overloaded):
                threads.submit(db.write, partial(add, "late")).result()
            work = carry(partial(db.write, partial(add, "late")))
        with pytest.raises(Overloaded):
            work()
        threads.submit(db.write, partial(add, "other")).result()
        guard_request(CLOSED)  # of no request
        db.write(partial(add, "after"))
    finally:
        threads.shutdown()
    assert notes() == ["after", "before", "closed", "other"]


@on_server
def test_a_write_beside_the_one_that_closes_comes_before_or_after_it(server: str) -> None:
    """Of two processes: the closing one waits for a write that has begun, which is done, and the next one waits for it."""
    began, may_end = threading.Event(), threading.Event()

    def add_slowly() -> None:
        add("first")
        began.set()
        assert may_end.wait(60)

    def submit(fn: Callable[[], Any]) -> "Future[Any]":
        with guarding(GuardedRequest(CLOSED)):
            return db.submit(fn, is_shared=True)

    with psycopg.connect(server) as other:
        first = submit(add_slowly)
        assert began.wait(60)
        lock = db.database.obj._writer_lock
        closing = threading.Thread(target=lambda: _close(other, lock))
        closing.start()
        waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: db.rows(waits))
        may_end.set()
        first.result(60)
        closing.join(60)
    with pytest.raises(Overloaded):
        submit(partial(add, "second")).result(60)
    assert notes() == ["closed", "first"]


def _close(other: Any, lock: int) -> None:
    other.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
    other.execute("INSERT INTO note (text) VALUES ('closed')")
    other.commit()
