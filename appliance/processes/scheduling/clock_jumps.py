"""A wall clock that is set: durations that are under way keep their length, points in time follow it.

Every due time is stored by the wall clock. A duration carries the machine that measures it (`measured_by`, its boot), and each
machine has a row with what its wall clock was apart from the time since the boot. Whoever of its processes first finds another
difference changes that row and moves its durations by as much, in one transaction; so it happens once. A machine that was booted
again has another id: what it left goes by the wall clock. One of several that share a database moves what it measures itself; the
others find that due by their own clocks, so they need the same time.
"""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db

log = logging.getLogger(__name__)
JUMP_MS = 2_000
"""By less, a clock that is set moves nothing until it adds up to this; slowing down and speeding up is no jump."""


class ClockJumps:
    """What one process knows of its machine's clock; thread-safe.

    `move`, inside a write, moves durations by so many milliseconds; `noticed` is called after every jump, however it was found.
    """

    def __init__(self, move: Sequence[Callable[[int], None]], noticed: Callable[[], None]) -> None:
        self.apart: int | None = None
        self._move = move
        self._noticed = noticed

    def now_ms(self) -> int:
        """The wall clock, after every duration has been stored by it: for whoever acts on what is due. Inside a write, too."""
        apart = clock.apart_ms()
        if self.apart is None or abs(apart - self.apart) >= JUMP_MS:
            db.write(partial(self._settle, apart))
        return clock.since_boot_ms() + apart  # not the wall clock: that may be set between two looks

    def look(self) -> int:
        """The same by the row: now and then, for another process may have changed that and ended before it was set back."""
        if _read_apart() != self.apart:
            db.write(lambda: self._settle(clock.apart_ms()))
        return self.now_ms()

    def _settle(self, apart: int) -> None:
        mine, known = clock.boot_id(), _read_apart()
        if known is None:
            sql = "INSERT INTO machine_clock (boot_id, apart_ms) VALUES (?, ?) ON CONFLICT (boot_id) DO NOTHING"
            db.execute(sql, (mine, apart))
        elif abs(apart - known) >= JUMP_MS:
            sql = "UPDATE machine_clock SET apart_ms = ? WHERE boot_id = ? AND apart_ms = ?"
            if db.execute(sql, (apart, mine, known)) == 1:
                for move in self._move:
                    move(apart - known)
        after = _read_apart()
        db.after_commit(partial(self._take_up, apart if after is None else after))

    def _take_up(self, apart: int) -> None:
        before, self.apart = self.apart, apart
        by = 0 if before is None else apart - before
        if abs(by) < JUMP_MS:
            return
        what = ("ahead", "sooner") if by > 0 else ("back", "later")
        text = "the clock was set %s by %d s: durations keep their length, points in time come so much %s"
        log.warning(text, what[0], abs(by) // 1000, what[1])
        self._noticed()


def _read_apart() -> int | None:
    """How far apart the clocks of this machine were, by its row."""
    found = db.rows("SELECT apart_ms FROM machine_clock WHERE boot_id = ?", (clock.boot_id(),))
    return int(found[0][0]) if found else None


_OF_OPEN = (
    "(tenant_id, execution_id) IN (SELECT tenant_id, id FROM execution WHERE status IN ('waiting', 'running', 'cancelling'))"
)
_CALLS = (
    "FROM pending_call AS c WHERE c.tenant_id = step_run.tenant_id AND c.execution_id = step_run.execution_id "
    "AND c.path = step_run.path AND c.iteration = step_run.iteration AND c.attempt = step_run.attempt AND c.ok IS NULL"
)


def move_durations(by_ms: int) -> None:
    """Inside a write: what this machine measures ends so much later by the wall clock, and every lease with it.

    Leases of other machines are moved, too: their owners write them anew all the time, and one that lives loses nothing.
    """
    mine = clock.boot_id()
    # A step that waits in calls is due with the first of them, or when one was answered: that stays.
    db.execute(
        f"UPDATE step_run SET next_run_at = (SELECT MIN(CASE WHEN c.measured_by = ? THEN c.due_at + ? ELSE c.due_at END) {_CALLS}) "  # noqa: S608 our own names
        f"WHERE status = 'waiting' AND {_OF_OPEN} AND next_run_at = (SELECT MIN(c.due_at) {_CALLS})",
        (mine, by_ms),
    )
    db.execute("UPDATE pending_call SET due_at = due_at + ? WHERE ok IS NULL AND measured_by = ?", (by_ms, mine))
    db.execute(
        "UPDATE step_run SET next_run_at = next_run_at + ? "  # noqa: S608 our own names
        f"WHERE status IN ('waiting', 'retrying') AND measured_by = ? AND {_OF_OPEN}",
        (by_ms, mine),
    )
    db.execute(
        "UPDATE execution SET next_run_at = (SELECT MIN(s.next_run_at) FROM step_run AS s WHERE s.tenant_id = execution.tenant_id "
        "AND s.execution_id = execution.id AND s.status IN ('waiting', 'retrying')) "
        "WHERE status = 'waiting' AND next_run_at IS NOT NULL"
    )
    db.execute("UPDATE execution SET lease_until = lease_until + ? WHERE status IN ('running', 'cancelling')", (by_ms,))
    _correct_waiting_for(mine)


def _correct_waiting_for(mine: str) -> None:
    """What callers are told of the waits of an execution."""
    calls = db.rows(
        "SELECT tenant_id, execution_id, path, iteration, call, due_at FROM pending_call WHERE ok IS NULL AND measured_by = ?",
        (mine,),
    )
    dues = {tuple(row[:5]): row[5] for row in calls}
    waiting = db.rows(
        "SELECT tenant_id, id, next_run_at, waiting_for FROM execution "
        "WHERE status = 'waiting' AND waiting_for IS NOT NULL AND next_run_at IS NOT NULL"
    )
    for tenant_id, execution_id, due, text in waiting:
        told = json.loads(text)
        told["until"] = clock.rfc3339(due)
        for each in told.get("waits", ()):
            _correct(each, dues.get((tenant_id, execution_id, each["path"], each.get("iteration", ""), each["call"])))
        after = db.dump_json(told)
        if after != text:
            db.execute("UPDATE execution SET waiting_for = ? WHERE tenant_id = ? AND id = ?", (after, tenant_id, execution_id))


def _correct(wait: dict[str, Any], due: int | None) -> None:
    if due is not None:
        wait["until"] = clock.rfc3339(due)
