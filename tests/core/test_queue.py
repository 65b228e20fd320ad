"""Wake-ups: part of the caller's transaction, JSON only, handed out once."""

import json
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.core import queue as core_queue
from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.errors import StorageFull
from appliance.core.queue import TaskQueue
from appliance.core.scheduling import Scheduler
from tests.store.opening import open_migrated


class Inbox:
    """Collects what the task was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._arrived = threading.Condition()

    def take(self, *args: Any) -> None:
        with self._arrived:
            self.calls.append(args)
            self._arrived.notify_all()
        if args[0] == "broken":
            raise RuntimeError("a task that fails")
        if args[0] == "full":
            raise StorageFull("the disk is full")

    def wait_for(self, count: int) -> list[tuple[Any, ...]]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.calls) >= count, 10), self.calls
        return self.calls


@pytest.fixture
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def queue(database: None, inbox: Inbox) -> Iterator[TaskQueue]:
    queue = TaskQueue()
    queue.declare("wake", inbox.take)
    yield queue
    queue.stop(5)


def test_a_message_arrives_after_the_commit(queue: TaskQueue, inbox: Inbox) -> None:
    queue.start(2, Scheduler(read_state))
    db.write(lambda: queue.enqueue("wake", "acme", "exe_1", 5))
    assert inbox.wait_for(1) == [("acme", "exe_1", 5)]
    assert queue.depth() == 0


def test_a_rollback_leaves_no_message(queue: TaskQueue, inbox: Inbox) -> None:
    def enqueue_and_fail() -> None:
        queue.enqueue("wake", "never")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        db.write(enqueue_and_fail)
    assert queue.depth() == 0
    queue.start(1, Scheduler(read_state))
    db.write(lambda: queue.enqueue("wake", "one"))
    assert inbox.wait_for(1) == [("one",)]


def test_a_message_wakes_a_worker(queue: TaskQueue, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_queue, "POLL_SECONDS", 600.0)
    queue.start(1, Scheduler(read_state))
    for number in range(3):
        db.write(lambda number=number: queue.enqueue("wake", number))  # type: ignore[misc]
        inbox.wait_for(number + 1)


def test_messages_of_another_process_are_noticed_and_wake_as_many_workers_as_are_idle(queue: TaskQueue, inbox: Inbox) -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(_: int) -> None:
        both.wait()

    queue.declare("meet", meet)
    queue.declare("met", inbox.take)
    queue.start(2, Scheduler(read_state))
    for round_number in range(2):  # the second after the workers have been idle
        for name in ("meet", "meet", "met"):
            text = json.dumps([str(round_number), f"gos.{name}", [round_number]]).encode()
            db.write(partial(db.execute, "INSERT INTO task (queue, data, priority) VALUES ('gos', ?, 0)", (text,)))
        assert inbox.wait_for(round_number + 1)[-1] == (round_number,)


def test_workers_start_in_any_thread_and_leave_signals_to_the_server(queue: TaskQueue, inbox: Inbox) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    threads = set(threading.enumerate())
    with ThreadPoolExecutor(1) as other:
        other.submit(queue.start, 2, Scheduler(read_state)).result(10)
    started = {thread.name for thread in set(threading.enumerate()) - threads}
    assert started - {"prompt"} == {"Worker-1", "Worker-2", "scheduler"}
    queue.stop(5)
    queue.start(1, Scheduler(read_state))  # in the main thread
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_messages_wait_for_workers(queue: TaskQueue, inbox: Inbox) -> None:
    for number in range(3):
        db.write(lambda number=number: queue.enqueue("wake", number))  # type: ignore[misc]
    db.write(lambda: queue.enqueue("wake", "urgent", priority=5))
    assert queue.depth() == 4
    queue.start(1, Scheduler(read_state))
    assert inbox.wait_for(4) == [("urgent",), (0,), (1,), (2,)]


def test_each_message_is_handed_out_once(queue: TaskQueue, inbox: Inbox) -> None:
    queue.start(6, Scheduler(read_state))
    for number in range(100):
        db.write(lambda number=number: queue.enqueue("wake", number))  # type: ignore[misc]
    assert sorted(inbox.wait_for(100)) == [(number,) for number in range(100)]
    queue.stop(5)
    assert len(inbox.calls) == 100


def test_a_failing_task_does_not_stop_the_worker(queue: TaskQueue, inbox: Inbox) -> None:
    queue.start(1, Scheduler(read_state))
    db.write(lambda: queue.enqueue("wake", "broken"))
    db.write(lambda: queue.enqueue("wake", "next"))
    assert inbox.wait_for(2) == [("broken",), ("next",)]


def test_a_full_disk_leaves_a_line_and_no_traceback(
    queue: TaskQueue, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    queue.start(1, Scheduler(read_state))
    db.write(lambda: queue.enqueue("wake", "full"))
    db.write(lambda: queue.enqueue("wake", "next"))
    inbox.wait_for(2)
    assert [(record.levelname, record.exc_info) for record in caplog.records if "full" in record.message] == [("WARNING", None)]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_message_is_json(queue: TaskQueue) -> None:
    db.write(lambda: queue.enqueue("wake", "acme"))
    (data,) = db.rows("SELECT data FROM task")[0]
    assert json.loads(data)[1:] == ["gos.wake", ["acme"]]


class Bomb:
    """Its pickle would make a file where it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_a_hostile_row_executes_nothing_and_blocks_nobody(queue: TaskQueue, inbox: Inbox, tmp_path: Path) -> None:
    rows = [pickle.dumps(Bomb(tmp_path / "owned")), b"", b"[]", b'["x", "unknown", []]', b'{"a": 1}']

    def insert() -> None:
        for row in rows:
            db.execute("INSERT INTO task (queue, data, priority) VALUES ('gos', ?, 9)", (row,))
        queue.enqueue("wake", "good")

    db.write(insert)
    queue.start(1, Scheduler(read_state))
    assert inbox.wait_for(1) == [("good",)]
    assert not (tmp_path / "owned").exists()
