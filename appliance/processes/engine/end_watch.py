"""Notifies callers in this OS process when another one has finished the execution they wait for."""

from appliance.core import clock
from appliance.core.database import db
from appliance.core.periodic import Periodic

from . import completion, store

MIN_SECONDS = 0.1
ROWS_PER_SECOND = 2000  # for all callers of one OS process together
BATCH = 200


class EndWatch:
    """Polls the rows that callers wait for, together every 0.1 s, or less often if there are many."""

    def __init__(self) -> None:
        self._previous: frozenset[tuple[str, str]] = frozenset()
        self._next = 0.0
        self._periodic = Periodic("end-watch", MIN_SECONDS, self.check)

    def start(self) -> None:
        self._periodic.start()

    def stop(self) -> None:
        self._periodic.stop()

    def check(self) -> None:
        """One round.  Checks only rows that were awaited in the previous round too: most executions finish in this process."""
        if clock.monotonic() < self._next:
            return
        awaited = completion.completion_signal.list_awaited()
        waiting, self._previous = sorted(self._previous & awaited), awaited
        self._next = clock.monotonic() + len(waiting) / ROWS_PER_SECOND
        for begin in range(0, len(waiting), BATCH):
            for execution_id in _finished(waiting[begin : begin + BATCH]):
                completion.completion_signal.notify(execution_id)


def _finished(waiting: list[tuple[str, str]]) -> list[str]:
    keys = " OR ".join(["(tenant_id = ? AND id = ?)"] * len(waiting))
    rows = db.rows(f"SELECT id, status FROM execution WHERE {keys}", tuple(part for key in waiting for part in key))  # noqa: S608
    return [execution_id for execution_id, status in rows if status in store.FINISHED]
