"""Notifies callers in this OS process when another one has finished the execution they wait for: by its notice, or by a poll."""

from collections.abc import Callable

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.notices import notices
from appliance.core.scheduling import PeriodicJob, Scheduler

from . import completion, store

MIN_SECONDS, MIN_SECONDS_BESIDE_NOTICES, MAX_SECONDS = 0.1, 2.0, 3600.0
ROWS_PER_SECOND = 2000  # for all callers of one OS process together
BATCH = 200


class EndWatch:
    """Polls the rows that callers wait for, together every 0.1 s (2 s if notices come from other processes), or less often if there
    are many; rests while none waits."""

    def __init__(self) -> None:
        self._previous: frozenset[tuple[str, str]] = frozenset()
        self._next = 0.0
        self._least = MIN_SECONDS
        self._is_any_due = False  # whether the next round checks those that began to wait since the previous one, too
        self._unsubscribe: Callable[[], None] = lambda: None
        self._job = PeriodicJob("end-watch", MAX_SECONDS, self.check)

    def start(self, scheduler: Scheduler) -> None:
        self._least = notices.poll_seconds(MIN_SECONDS, MIN_SECONDS_BESIDE_NOTICES)
        completion.completion_signal.on_subscribe = lambda: self._job.run_within(self._least)
        self._job.start(scheduler)
        self._unsubscribe = notices.subscribe(completion.ENDED, self._hear)

    def stop(self) -> None:
        self._unsubscribe()
        self._job.stop()

    def _hear(self, execution_id: str | None) -> None:
        if execution_id is not None:
            completion.completion_signal.notify(execution_id)
        else:
            self._is_any_due = True
            self._job.hasten()

    def check(self) -> None:
        """One round.  Checks only rows that were awaited in the previous round too: most executions finish in this process."""
        if (early := self._next - clock.monotonic()) > 0:
            self._job.run_within(early)
            return
        awaited = completion.completion_signal.list_awaited()
        is_any_due, self._is_any_due = self._is_any_due, False
        waiting, self._previous = sorted(awaited if is_any_due else self._previous & awaited), awaited
        pause = len(waiting) / ROWS_PER_SECOND
        self._next = clock.monotonic() + pause
        if awaited:
            self._job.run_within(max(self._least, pause))
        for begin in range(0, len(waiting), BATCH):
            for execution_id in _finished(waiting[begin : begin + BATCH]):
                completion.completion_signal.notify(execution_id)


def _finished(waiting: list[tuple[str, str]]) -> list[str]:
    keys = " OR ".join(["(tenant_id = ? AND id = ?)"] * len(waiting))
    rows = db.rows(f"SELECT id, status FROM execution WHERE {keys}", tuple(part for key in waiting for part in key))  # noqa: S608
    return [execution_id for execution_id, status in rows if status in store.FINISHED]
