"""Notifies callers in this OS process when another one has finished the execution they wait for."""

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scheduling import PeriodicJob, Scheduler

from . import completion, store

MIN_SECONDS, MAX_SECONDS = 0.1, 3600.0
ROWS_PER_SECOND = 2000  # for all callers of one OS process together
BATCH = 200


class EndWatch:
    """Polls the rows that callers wait for, together every 0.1 s, or less often if there are many; rests while none waits."""

    def __init__(self) -> None:
        self._previous: frozenset[tuple[str, str]] = frozenset()
        self._next = 0.0
        self._job = PeriodicJob("end-watch", MAX_SECONDS, self.check)

    def start(self, scheduler: Scheduler) -> None:
        completion.completion_signal.on_subscribe = lambda: self._job.run_within(MIN_SECONDS)
        self._job.start(scheduler)

    def stop(self) -> None:
        self._job.stop()

    def check(self) -> None:
        """One round.  Checks only rows that were awaited in the previous round too: most executions finish in this process."""
        if (early := self._next - clock.monotonic()) > 0:
            self._job.run_within(early)
            return
        awaited = completion.completion_signal.list_awaited()
        waiting, self._previous = sorted(self._previous & awaited), awaited
        pause = len(waiting) / ROWS_PER_SECOND
        self._next = clock.monotonic() + pause
        if awaited:
            self._job.run_within(max(MIN_SECONDS, pause))
        for begin in range(0, len(waiting), BATCH):
            for execution_id in _finished(waiting[begin : begin + BATCH]):
                completion.completion_signal.notify(execution_id)


def _finished(waiting: list[tuple[str, str]]) -> list[str]:
    keys = " OR ".join(["(tenant_id = ? AND id = ?)"] * len(waiting))
    rows = db.rows(f"SELECT id, status FROM execution WHERE {keys}", tuple(part for key in waiting for part in key))  # noqa: S608
    return [execution_id for execution_id, status in rows if status in store.FINISHED]
