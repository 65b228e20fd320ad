"""Huey over the application's database: its storage, its serializer, and the threads of its consumer.

Written for Huey 3.5.4. Everything here uses interfaces that Huey has for the purpose (`BaseStorage`, `Serializer`,
`Huey.create_consumer`); no private part is overridden. For each: what happens otherwise, the issue of coleifer/huey that it
answers ("none" means that none was open), and the test that fails without it.

- `JsonSerializer`: messages are JSON. Otherwise they are pickled, and a row of the queue can execute code: #818.
  `test_a_hostile_row_executes_nothing_and_blocks_nobody`
- `DatabaseStorage`: a message is part of the caller's transaction, is taken on the writer's thread, and wakes a worker after
  the commit, one of another process if those of this one are busy; until then it waits without polling. Otherwise
  (`SqlStorage`) each thread begins transactions of its own, and workers poll. None.
  `test_a_rollback_leaves_no_message`, `test_a_message_wakes_a_worker`
- `start_workers`: starts the worker threads alone. `Consumer.start` also installs signal handlers, which replace the server's
  and which only the main thread can install, and a scheduler thread, for which there are no tasks. None.
  `test_workers_start_in_any_thread_and_leave_signals_to_the_server`
"""

import json
import logging
import threading
from typing import Any

from .database import db
from .database.notices import notices
from .errors import StorageFull
from .imports import import_without

import_without("huey", "psycopg", "redis")  # for storages that are not used here

from huey import Huey  # noqa: E402
from huey.consumer import Consumer  # noqa: E402
from huey.registry import Message  # noqa: E402
from huey.serializer import Serializer  # noqa: E402
from huey.storage import BlackHoleStorage  # noqa: E402

log = logging.getLogger(__name__)

FULL_DISK_PAUSE = 1.0  # seconds
ENQUEUED = "task"  # the topic of notices
_FIRST = "SELECT id FROM task WHERE queue = ? ORDER BY priority DESC, id LIMIT 1"


class JsonSerializer(Serializer):  # type: ignore[misc]
    """Messages as JSON: id, name and arguments of a task."""

    def serialize(self, data: Any) -> bytes:
        return json.dumps([data.id, data.name, list(data.args)]).encode()

    def deserialize(self, data: bytes) -> Any:
        task_id, name, args = json.loads(data)
        return Message(id=task_id, name=name, retries=0, retry_delay=0, priority=0, args=tuple(args), kwargs={})


class DatabaseStorage(BlackHoleStorage):  # type: ignore[misc]
    """The queue in the table `task`. It stores nothing else: no results, no revocations (cancellation is a state of the
    domain's row) and no scheduled messages (timers are rows of their domain)."""

    blocking = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._arrived = threading.Condition()
        self._signals = 0
        self._idle = 0

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Inside a write: insert the message, and wake a worker after the commit; one of another process if all here are busy."""
        db.execute("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", (self.name, data, priority or 0))
        db.after_commit(self._wake_anyone)

    def _wake_anyone(self) -> None:
        if not self.wake():
            notices.notify_others(ENQUEUED)

    def wake(self, count: int = 1) -> bool:
        """Let `count` calls of `dequeue` that wait, or that find nothing next, look again; returns whether so many wait."""
        with self._arrived:
            self._signals += count
            self._arrived.notify(count)
            return self._signals <= self._idle

    def expect(self) -> bool:
        """There may be messages of other processes: returns whether a call of `dequeue` waits that nothing has woken yet;
        otherwise the next call that finds nothing looks again."""
        with self._arrived:
            if not self._idle:
                self._signals = max(self._signals, 1)
            return self._signals < self._idle

    def count_idle(self) -> int:
        """The number of calls of `dequeue` that wait."""
        return self._idle

    def dequeue(self) -> bytes | None:
        """Take the first message; without one, wait for `wake` and look again.

        On a full disk, none can be taken: None after a pause. Huey would log each attempt of each worker with a traceback.
        """
        try:
            return self._take_or_wait()
        except StorageFull as error:
            db.log_failure(log, error, "no message of the queue could be taken")
            with self._arrived:
                self._arrived.wait(FULL_DISK_PAUSE)
            return None

    def _take_or_wait(self) -> bytes | None:
        data = self._take()
        if data is None:
            with self._arrived:
                self._idle += 1
                self._arrived.wait_for(lambda: self._signals)
                self._idle -= 1
                self._signals -= 1
            data = self._take()
        return data

    def _take(self) -> bytes | None:
        if not self.has_items(1):  # a read needs no place among the writes
            return None
        return db.write(self._delete_first, is_shared=True)

    def _delete_first(self) -> bytes | None:
        """Inside a write: take the first message that no other worker is taking."""
        rows = db.rows(f"DELETE FROM task WHERE id = ({_FIRST}{db.skip_locked()}) RETURNING data", (self.name,))  # noqa: S608
        return bytes(rows[0][0]) if rows else None

    def queue_size(self) -> int:
        return int(db.rows("SELECT COUNT(*) FROM task WHERE queue = ?", (self.name,))[0][0])

    def has_items(self, count: int) -> bool:
        """Whether there are at least `count` messages; reads no more than that many."""
        return bool(db.rows("SELECT 1 FROM task WHERE queue = ? LIMIT 1 OFFSET ?", (self.name, count - 1)))

    def count_items(self, most: int) -> int:
        """The number of messages, `most` at most; reads no more than that many."""
        sql = "SELECT COUNT(*) FROM (SELECT 1 FROM task WHERE queue = ? LIMIT ?) AS first"
        return int(db.rows(sql, (self.name, most))[0][0])

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        sql = "SELECT data FROM task WHERE queue = ? ORDER BY priority DESC, id"
        rows = db.rows(sql, (self.name,)) if limit is None else db.rows(f"{sql} LIMIT ?", (self.name, limit))
        return [bytes(data) for (data,) in rows]


def make_huey(name: str) -> Huey:
    """A Huey whose messages are rows of the open database."""
    return Huey(name, results=False, storage_class=DatabaseStorage, serializer=JsonSerializer())


def start_workers(huey: Huey, count: int) -> Consumer:
    """Start `count` worker threads, and nothing else of the consumer."""
    consumer = huey.create_consumer(workers=count, worker_type="thread", periodic=False)
    for _, thread in consumer.worker_threads:
        thread.start()
    return consumer
