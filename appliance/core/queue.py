"""The task queue: Huey on the application's database, so that enqueueing is part of the caller's transaction.

A message is only a wake-up that carries ids.  It may be delivered twice or not at all; the domain's sweeper compensates.
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
    """Serializes messages as JSON; Huey's default, pickle, would execute code from a queue row."""

    def _serialize(self, data: Any) -> bytes:
        name, args = data.name, data.args
        return json.dumps([data.id, name, list(args)]).encode()

    def _deserialize(self, data: bytes) -> Any:
        task_id, name, args = json.loads(data)
        return Message(id=task_id, name=name, retries=0, retry_delay=0, priority=0, args=tuple(args), kwargs={})


class _Storage(SqlStorage):  # type: ignore[misc]
    """Huey's storage, with a read before taking the write lock, and an in-process wake-up in addition to polling."""

    blocking = True

    def __init__(self, name: str = "gos", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._arrived = threading.Condition()
        self._signals = 0

    def check_conn(self) -> None:
        """Does nothing, because the database connects automatically."""

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
        data: bytes | None = db.write(self._take_first)
        return data

    def _take_first(self) -> bytes | None:
        first = self.tasks(self.Task.id, self.Task.data).order_by(self.Task.priority.desc(), self.Task.id).limit(1)
        row = (first.for_update("FOR UPDATE SKIP LOCKED") if self.for_update else first).first()
        if row is None:
            return None
        self.Task.delete().where(self.Task.id == row.id).execute()
        return bytes(row.data)

    def delete_data(self, key: str) -> bool:
        return False  # Huey clears a revocation after each task, but we store neither results nor revocations.

    def read_schedule(self, timestamp: Any) -> list[bytes]:
        return []  # Timers are rows of their domain, never scheduled messages.


class _Huey(Huey):  # type: ignore[misc]
    def is_revoked(self, task: Any, timestamp: Any = None, peek: bool = True) -> bool:
        return False  # Cancellation is a state of the domain's row; Huey's check would cost two queries per message.


class _Consumer(Consumer):  # type: ignore[misc]
    def _set_signal_handlers(self) -> None:
        """Does nothing, because the server handles signals."""


class TaskQueue:
    """A queue of wake-ups, the tasks declared on it, and the worker threads that run them."""

    def __init__(self, database: Any) -> None:
        self._huey = _Huey(
            "gos", results=False, storage_class=_Storage, database=database, create_tables=False, serializer=_JsonSerializer()
        )
        self._tasks: dict[str, Any] = {}
        self._consumer: Consumer | None = None

    def declare(self, name: str, function: Callable[..., None]) -> None:
        """Register a function as the task `name`; its arguments are JSON scalars.

        Exceptions are logged, and the worker continues with the next message.
        """

        def run(*args: Any) -> None:
            try:
                function(*args)
            except StorageFull as error:  # Huey would log a traceback for each message.
                db.log_failure(log, error, "the task %s failed; the sweeper will retry it when there is disk space", name)

        run.__module__ = "gos"  # Task names must not depend on the function's module, which may change between releases.
        self._tasks[name] = self._huey.task(name=name)(run)

    def enqueue(self, name: str, *args: str | int, priority: int = 0) -> None:
        """Enqueue a message inside a write; it becomes visible with the commit, or not at all."""
        self._huey.enqueue(self._tasks[name].s(*args, priority=priority))

    def depth(self) -> int:
        """The number of messages that no worker has taken yet."""
        return int(self._huey.storage.queue_size())

    def has_messages(self, count: int) -> bool:
        """Whether there are at least `count` messages; reads no more than that many."""
        tasks = self._huey.storage.tasks
        return bool(tasks(self._huey.storage.Task.id).offset(count - 1).limit(1).exists())

    def list_waiting(self, name: str) -> set[tuple[str | int, ...]]:
        """The arguments of all messages of the task `name` that no worker has taken yet; reads the whole queue."""
        messages = [json.loads(data) for data in self._huey.storage.enqueued_items()]
        return {tuple(args) for _, task, args in messages if task == f"gos.{name}"}

    def start(self, workers: int) -> None:
        """Start `workers` threads in this process that run the tasks."""
        logging.getLogger("huey").setLevel(logging.WARNING)
        self._consumer = _Consumer(self._huey, workers=workers, worker_type="thread", periodic=False, check_worker_health=True)
        self._consumer.start()

    def stop(self, timeout: float) -> None:
        """Stop taking messages, and wait up to `timeout` seconds for running tasks."""
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
    """The DDL of Huey's tables, in the portable SQL of the baseline."""
    return [
        "CREATE TABLE task (id {serial}, queue TEXT NOT NULL, data {blob} NOT NULL, priority DOUBLE PRECISION NOT NULL)",
        "CREATE INDEX task_priority_id ON task (priority DESC, id)",
    ]
