"""Tells callers of this process of ends that another process has brought about."""

from appliance.core import clock
from appliance.core.database import db
from appliance.core.periodic import Periodic

from . import ending, store

LEAST_SECONDS = 0.1
ROWS_PER_SECOND = 2000  # of all callers of one process together
BATCH = 200


class EndWatch:
    """Looks at the rows that callers wait for: at all of them together every 0.1 s, and less often where they are many."""

    def __init__(self) -> None:
        self._last: frozenset[tuple[str, str]] = frozenset()
        self._next = 0.0
        self._work = Periodic("end-watch", LEAST_SECONDS, self.look)

    def start(self) -> None:
        self._work.start()

    def stop(self) -> None:
        self._work.stop()

    def look(self) -> None:
        """One round: of those who waited in the round before too, since most ends are this process's own and come sooner."""
        if clock.monotonic() < self._next:
            return
        awaited = ending.finished.awaited()
        waiting, self._last = sorted(self._last & awaited), awaited
        self._next = clock.monotonic() + len(waiting) / ROWS_PER_SECOND
        for begin in range(0, len(waiting), BATCH):
            for execution_id in _finished(waiting[begin : begin + BATCH]):
                ending.finished.announce(execution_id)


def _finished(waiting: list[tuple[str, str]]) -> list[str]:
    keys = " OR ".join(["(tenant_id = ? AND id = ?)"] * len(waiting))
    rows = db.rows(f"SELECT id, status FROM execution WHERE {keys}", tuple(part for key in waiting for part in key))  # noqa: S608
    return [execution_id for execution_id, status in rows if status in store.FINISHED]
