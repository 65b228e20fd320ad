"""Looks at the database of executions from outside, while the processes that run them die."""

import threading
import time
from collections import Counter
from dataclasses import dataclass

import psycopg

from appliance.core.database.advisory_locks import lock_number

LOOK_SECONDS = 0.05
LOCKS = "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
_STATES = (
    "SELECT status, wait_reason, owner, count(*) FROM execution WHERE finished_at IS NULL GROUP BY status, wait_reason, owner"
)
_OVERDUE = (
    "SELECT max(extract(epoch FROM clock_timestamp()) * 1000 - next_run_at) FROM execution "
    "WHERE status IN ('waiting', 'scheduled') AND next_run_at IS NOT NULL"
)


@dataclass
class Look:
    """The unsettled executions `at` so many seconds after the first acceptance; `overdue_s` is the longest delay of a due one."""

    at: float
    unsettled: dict[str, int]
    of_the_dead: int
    overdue_s: float

    @property
    def total(self) -> int:
        return sum(self.unsettled.values())


class Observer:
    """Looks at the database from outside, all the time."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._server = psycopg.connect(database, autocommit=True)
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks: list[Look] = [self._look()]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._server.close()

    def now(self) -> float:
        return time.monotonic() - self._began

    def recovery(self, killed: float, until: float) -> float:
        """Seconds until nothing belonged any more to who was killed at `killed`; infinite when it did `until` the next kill."""
        looks = [look for look in self.looks if killed <= look.at < until]
        first = next((index for index, look in enumerate(looks) if look.of_the_dead), None)
        if first is None:
            return 0.0
        return round(next((look.at - killed for look in looks[first:] if not look.of_the_dead), float("inf")), 2)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                if self._server.closed:
                    self._server = psycopg.connect(self._database, autocommit=True)
                self.looks.append(self._look())
            except psycopg.OperationalError:
                self._server.close()  # PostgreSQL is not there at the moment.

    def _look(self) -> Look:
        rows = self._server.execute(_STATES).fetchall()
        alive = {(high << 32) + low for high, low in self._server.execute(LOCKS)}
        overdue = self._server.execute(_OVERDUE).fetchall()[0][0]
        unsettled: Counter[str] = Counter()
        dead = 0
        for status, reason, owner, count in rows:
            unsettled[f"{status}:{reason}" if reason else status] += count
            if owner is not None and lock_number(owner) not in alive:
                dead += count
        return Look(self.now(), dict(unsettled), dead, max(0.0, float(overdue or 0) / 1000))
