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

import peewee
import pytest

from appliance.core import huey_adapter
from appliance.core import queue as core_queue
from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.database.notices import Notices, notices
from appliance.core.errors import StorageFull
from appliance.core.huey_adapter import ENQUEUED, DatabaseStorage
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


def test_no_worker_fails_because_the_disk_is_full(
    database: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = DatabaseStorage("waiting")
    db.write(lambda: storage.enqueue(b"a message"))

    def fail(self: DatabaseStorage) -> None:
        raise peewee.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(huey_adapter, "FULL_DISK_PAUSE", 0.01)
        patch.setattr(DatabaseStorage, "_delete_first", fail)
        assert [storage.dequeue(), storage.dequeue()] == [None, None]
    assert [record.name for record in caplog.records if record.levelname != "DEBUG"] == ["appliance.core.database.writers"]
    assert storage.dequeue() == b"a message"


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


@pytest.fixture
def foreign(database: None) -> Iterator[tuple[Notices, threading.Event]]:
    """The notices of another process, which hears that there are messages; and those of this one, connected."""
    other, arrival, connected = Notices(), threading.Event(), threading.Semaphore(0)

    def hear(payload: str | None) -> None:
        connected.release() if payload is None else arrival.set()

    def note(_: str | None) -> None:
        connected.release()

    other.subscribe(ENQUEUED, hear)
    end = notices.subscribe(ENQUEUED, note)
    for each in (notices, other):
        each.start()
        assert connected.acquire(timeout=30)
    end()
    yield other, arrival
    for each in (notices, other):
        each.stop()


def insert_elsewhere(name: str, number: int) -> None:
    """As another process enqueues: this process is not told."""
    text = json.dumps([str(number), f"gos.{name}", [number]]).encode()
    db.write(partial(db.execute, "INSERT INTO task (queue, data, priority) VALUES ('gos', ?, 0)", (text,)))


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_notice_of_another_process_wakes_as_many_workers_as_there_are_messages(
    foreign: tuple[Notices, threading.Event], queue: TaskQueue, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(_: int) -> None:
        both.wait()

    monkeypatch.setattr(core_queue, "POLL_SECONDS_BESIDE_NOTICES", 600.0)
    queue.declare("meet", meet)
    queue.start(2, Scheduler(read_state))
    for number in range(2):
        insert_elsewhere("meet", number)
    insert_elsewhere("wake", 2)
    foreign[0].notify_others(ENQUEUED)
    assert inbox.wait_for(1) == [(2,)]


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_notice_that_finds_every_worker_busy_is_remembered(
    foreign: tuple[Notices, threading.Event], queue: TaskQueue, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        assert go_on.wait(30)

    monkeypatch.setattr(core_queue, "POLL_SECONDS_BESIDE_NOTICES", 600.0)
    queue.declare("hold", hold)
    queue.start(1, Scheduler(read_state))
    db.write(lambda: queue.enqueue("hold"))
    assert started.wait(30)
    db.write(lambda: queue.enqueue("wake", 1))
    assert foreign[1].wait(30), "all workers here are busy, so those of other processes are told"
    insert_elsewhere("wake", 2)
    foreign[0].notify_others(ENQUEUED)
    go_on.set()
    assert inbox.wait_for(2) == [(1,), (2,)]


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_message_that_a_worker_here_takes_is_announced_to_nobody(
    foreign: tuple[Notices, threading.Event], queue: TaskQueue, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_queue, "POLL_SECONDS_BESIDE_NOTICES", 600.0)
    pause, sent = threading.Event(), list[str]()

    def record(topic: str, _: str = "") -> None:
        sent.append(topic)

    monkeypatch.setattr(notices, "notify_others", record)
    queue.start(1, Scheduler(read_state))
    storage = queue._huey.storage
    while not storage.count_idle():
        pause.wait(0.01)  # until the worker waits
    db.write(lambda: queue.enqueue("wake", 1))
    assert inbox.wait_for(1) == [(1,)]
    assert sent == []
