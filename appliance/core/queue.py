"""The task queue: Huey on the application's own database, so that enqueueing is part of the caller's transaction.

A message is only a wake-up that carries ids; it may come twice or never (the sweeper of the domain sees to that).
"""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from huey import Huey
from huey.consumer import Consumer
from huey.contrib.sql_huey import SqlStorage
from huey.registry import Message
from huey.serializer import Serializer

from . import clock
from .database import db
from .errors import StorageFull

log = logging.getLogger(__name__)
IDLE_SECONDS = 0.5


class _JsonSerializer(Serializer):  # type: ignore[misc]
    """Huey's default is pickle, which executes code found in a queue row."""

    def _serialize(self, data: Any) -> bytes:
        name, args = data.name, data.args
        return json.dumps([data.id, name, list(args)]).encode()

    def _deserialize(self, data: bytes) -> Any:
        task_id, name, args = json.loads(data)
        return Message(id=task_id, name=name, retries=0, retry_delay=0, priority=0, args=tuple(args), kwargs={})


class _Storage(SqlStorage):  # type: ignore[misc]
    """Huey's tables, read before the write lock is taken, with an in-process wake-up instead of polling."""

    blocking = True

    def __init__(self, name: str = "gos", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._arrived = threading.Condition()
        self._signals = 0

    def check_conn(self) -> None:
        """The database connects by itself."""

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        super().enqueue(data, priority)
        db.after_commit(self.wake)

    def wake(self) -> None:
        with self._arrived:
            self._signals += 1
            self._arrived.notify()

    def dequeue(self) -> bytes | None:
        data = self._take()
        if data is None:
            with self._arrived:
                if not self._signals:
                    self._arrived.wait(IDLE_SECONDS)
                self._signals = max(0, self._signals - 1)
            data = self._take()
        return data

    def _take(self) -> bytes | None:
        if not db.rows("SELECT 1 FROM task WHERE queue = ? LIMIT 1", (self.name,)):
            return None
        taken: bytes | None = db.write(self._take_first)
        return taken

    def _take_first(self) -> bytes | None:
        first = self.tasks(self.Task.id, self.Task.data).order_by(self.Task.priority.desc(), self.Task.id).limit(1)
        row = (first.for_update("FOR UPDATE SKIP LOCKED") if self.for_update else first).first()
        if row is None:
            return None
        self.Task.delete().where(self.Task.id == row.id).execute()
        return bytes(row.data)

    def delete_data(self, key: str) -> bool:
        return False  # Huey clears a revocation after each task; we keep no results and no revocations

    def read_schedule(self, timestamp: Any) -> list[bytes]:
        return []  # timers are rows of their domain, never scheduled messages


class _Huey(Huey):  # type: ignore[misc]
    def is_revoked(self, task: Any, timestamp: Any = None, peek: bool = True) -> bool:
        return False  # cancelling is a state of the row; asking Huey costs two queries a message


class _Consumer(Consumer):  # type: ignore[misc]
    def _set_signal_handlers(self) -> None:
        """The server owns signals."""


class TaskQueue:
    """One queue of wake-ups with the tasks declared on it and the threads that work it off."""

    def __init__(self, database: Any) -> None:
        self._huey = _Huey(
            "gos", results=False, storage_class=_Storage, database=database, create_tables=False, serializer=_JsonSerializer()
        )
        self._tasks: dict[str, Any] = {}
        self._consumer: Consumer | None = None

    def declare(self, name: str, function: Callable[..., None]) -> None:
        """Register `function` as the task `name`; its arguments are JSON scalars.

        What it raises is logged, and the worker goes on with the next message.
        """

        def run(*args: Any) -> None:
            try:
                function(*args)
            except StorageFull as error:  # known and logged once; Huey would log a traceback for each message
                db.log_failure(log, error, "the task %s failed; the sweeper takes up its work when there is room", name)

        run.__module__ = "gos"  # a message must be understood wherever the function lives in the next release
        self._tasks[name] = self._huey.task(name=name)(run)

    def enqueue(self, name: str, *args: str | int, priority: int = 0) -> None:
        """Inside a write: the message becomes visible with the commit, or not at all."""
        self._huey.enqueue(self._tasks[name].s(*args, priority=priority))

    def depth(self) -> int:
        """Messages that nobody has taken yet."""
        return int(self._huey.storage.queue_size())

    def has(self, count: int) -> bool:
        """Whether at least `count` messages are there; reads no more than that many."""
        tasks = self._huey.storage.tasks
        return bool(tasks(self._huey.storage.Task.id).offset(count - 1).limit(1).exists())

    def waiting(self, name: str) -> set[tuple[str | int, ...]]:
        """The arguments of every message of the task `name` that nobody has taken yet; reads the whole queue."""
        messages = [json.loads(data) for data in self._huey.storage.enqueued_items()]
        return {tuple(args) for _, task, args in messages if task == f"gos.{name}"}

    def start(self, workers: int) -> None:
        """Begin working messages off in `workers` threads of this process."""
        logging.getLogger("huey").setLevel(logging.WARNING)
        self._consumer = _Consumer(self._huey, workers=workers, worker_type="thread", periodic=False, check_worker_health=True)
        self._consumer.start()

    def stop(self, timeout: float) -> None:
        """Stop taking messages; wait up to `timeout` seconds for the ones being worked on."""
        if self._consumer is None:
            return
        self._consumer.stop_flag.set()
        for _ in range(len(self._consumer.worker_threads)):
            self._huey.storage.wake()
        deadline = clock.monotonic() + timeout
        for _, thread in self._consumer.worker_threads:
            thread.join(max(0.0, deadline - clock.monotonic()))
        self._consumer = None


def table_statements() -> list[str]:
    """DDL of Huey's tables in the portable subset of our migrations."""
    return [
        "CREATE TABLE task (id {serial}, queue TEXT NOT NULL, data {blob} NOT NULL, priority DOUBLE PRECISION NOT NULL)",
        "CREATE INDEX task_priority_id ON task (priority DESC, id)",
    ]
