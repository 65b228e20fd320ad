"""The task queue: Huey on the application's database, so that enqueueing is part of the caller's transaction.

A message is only a wake-up that carries ids.  It may be delivered twice or not at all; the domain's sweeper compensates.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from . import clock
from .database import db
from .database.notices import notices
from .errors import StorageFull
from .huey_adapter import ENQUEUED, make_huey, start_workers
from .scheduling import PROMPT, PeriodicJob, Rest, Scheduler

log = logging.getLogger(__name__)
POLL_SECONDS = 0.25
POLL_SECONDS_BESIDE_NOTICES = 1.0


class TaskQueue:
    """A queue of wake-ups, the tasks declared on it, and the worker threads that run them."""

    def __init__(self) -> None:
        self._huey = make_huey("gos")
        self._tasks: dict[str, Any] = {}
        self._consumer: Any = None
        self._poll: PeriodicJob | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

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
        return bool(self._huey.storage.has_items(count))

    def list_waiting(self, name: str) -> set[tuple[str | int, ...]]:
        """The arguments of all messages of the task `name` that no worker has taken yet; reads the whole queue."""
        messages = [json.loads(data) for data in self._huey.storage.enqueued_items()]
        return {tuple(args) for _, task, args in messages if task == f"gos.{name}"}

    def start(self, workers: int, scheduler: Scheduler) -> None:
        """Start `workers` threads in this process that run the tasks; they learn of messages of other processes by notices
        and a poll."""
        logging.getLogger("huey").setLevel(logging.WARNING)
        self._consumer = start_workers(self._huey, workers)
        seconds = notices.poll_seconds(POLL_SECONDS, POLL_SECONDS_BESIDE_NOTICES)
        self._poll = PeriodicJob("queue", seconds, self._wake_workers, PROMPT, rest=Rest(next_due=lambda: None))
        self._poll.start(scheduler)
        self._unsubscribe = notices.subscribe(ENQUEUED, self._expect)

    def _expect(self, _: str | None) -> None:
        if self._poll is not None and self._huey.storage.expect():
            self._poll.hasten()

    def _wake_workers(self) -> None:
        storage = self._huey.storage
        if (idle := storage.count_idle()) and (count := storage.count_items(idle)):
            storage.wake(count)

    def stop(self, timeout: float) -> None:
        """Stop taking messages, and wait up to `timeout` seconds for running tasks."""
        if self._consumer is None or self._poll is None:
            return
        self._unsubscribe()
        self._poll.stop()
        self._consumer.stop()
        self._huey.storage.wake(len(self._consumer.worker_threads))
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
